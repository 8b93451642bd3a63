"""Files that give a server its variables and command line, each as its reader takes it."""

import pytest

from fi_doctor.errors import DataError
from fi_doctor.facts import manifests
from fi_doctor.facts.serve_words import release_of


def read(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return manifests.read_manifest(path)


def values(given):
    return {name: one.value for name, one in given.variables.items()}


DOCKERFILE = """\
ARG BASE=x
FROM vllm/vllm-openai:v0.17.1 AS base
ENV A=1 B="two words" \\
    C=/x
ENV LEGACY some value
FROM base
ENV D=$A E='${B}' F=$BUILD
RUN <<EOF
ENV NOT=1
EOF
ENTRYPOINT ["vllm", "serve"]
CMD ["openai/gpt-oss-20b", "--tensor-parallel-size", "8"]
"""


def test_a_dockerfile_of_two_stages(tmp_path):
    [given] = read(tmp_path, "Dockerfile", DOCKERFILE)
    expected = {"A": "1", "B": "two words", "C": "/x", "LEGACY": "some value", "D": "1", "E": "${B}", "F": None}
    assert values(given) == expected
    assert (given.variables["A"].line, given.variables["D"].line, given.line) == (3, 7, 12)
    assert (given.server, given.words) == ("vllm", ("openai/gpt-oss-20b", "--tensor-parallel-size", "8"))


@pytest.mark.parametrize(
    ("text", "server", "words"),
    [
        ('FROM vllm/vllm-openai\nCMD ["--model", "a/b"]\n', "vllm", ("--model", "a/b")),
        ("FROM x\nCMD vllm serve a/b --enforce-eager\n", "vllm", ("a/b", "--enforce-eager")),
        (
            "FROM x\nENTRYPOINT exec python3 -m sglang.launch_server --model-path a/b\n",
            "sglang",
            ("--model-path", "a/b"),
        ),
        ("FROM x\nCMD python -m vllm.entrypoints.openai.api_server --model a/b\n", "vllm", ("--model", "a/b")),
        ("FROM x\nCMD nginx\n", "", ()),
        ('FROM vllm/vllm-openai\nENTRYPOINT ["bash"]\n', "", ()),
        ('FROM x AS y\nENTRYPOINT ["vllm", "serve"]\nFROM y\nCMD ["a/b"]\n', "vllm", ("a/b",)),
        ('FROM x\nCMD ["a/b"]\nENTRYPOINT ["vllm", "serve"]\n', "vllm", ("a/b",)),
        ('FROM x AS y\nCMD ["a/b"]\nFROM y\nENTRYPOINT ["vllm", "serve"]\n', "vllm", ()),
        ("FROM x AS y\nCMD vllm serve a/b\nFROM y\nRUN true\n", "vllm", ("a/b",)),
        ('FROM --platform=linux/amd64 vllm/vllm-openai AS y\nFROM y\nCMD ["a/b"]\n', "vllm", ("a/b",)),
    ],
)
def test_servers_that_a_dockerfile_starts(tmp_path, text, server, words):
    [given] = read(tmp_path, "server.Dockerfile", text)
    assert (given.server, given.words) == (server, words)


def test_variables_of_a_command_line(tmp_path):
    text = "FROM x\nENV A=1\nCMD export B=2 && A=3 vllm serve a/b\n"
    [given] = read(tmp_path, "Containerfile", text)
    assert values(given) == {"A": "3", "B": "2"}
    assert given.words == ("a/b",)


COMPOSE = """\
services:
  llm:
    image: vllm/vllm-openai:v0.17.1
    env_file: [server.env, absent.env]
    environment:
      A: 1
      B: "true"
      C:
      D: ${FROM_HOST}
    command: --model openai/gpt-oss-20b --tensor-parallel-size 2
  other:
    image: redis
    environment: [A=1, B]
"""


def test_a_compose_file(tmp_path):
    (tmp_path / "server.env").write_text("# a comment\nE=in a file\nA=0\n")
    llm, other = read(tmp_path, "compose.yaml", COMPOSE)
    assert values(llm) == {"E": "in a file", "A": "1", "B": "true", "C": None, "D": None}
    assert (llm.variables["B"].line, llm.line) == (7, 10)
    assert (llm.part, llm.server) == ("service llm", "vllm")
    assert llm.words == ("--model", "openai/gpt-oss-20b", "--tensor-parallel-size", "2")
    assert llm.unread == {"env_file absent.env": "No such file or directory"}
    assert (values(other), other.server) == ({"A": "1", "B": None}, "")


MERGED = """\
x-env: &env {A: 1, B: 2}
x-more: &more {B: 3, C: 4}
x-base: &base
  image: vllm/vllm-openai:v0.17.1
  command: --swap-space 4
services:
  llm:
    <<: *base
    environment: {<<: [*env, *more], A: own}
  other:
    extends: {service: llm, file: elsewhere.yaml}
    "<<": no merge
"""


def test_a_compose_file_with_merged_mappings(tmp_path):
    llm, other = read(tmp_path, "compose.yaml", MERGED)
    assert values(llm) == {"A": "own", "B": "2", "C": "4"}
    assert (llm.server, llm.words, llm.line) == ("vllm", ("--swap-space", "4"), 5)
    assert (llm.unread, other.unread) == ({}, {"extends": "service llm is not read into it"})


def test_a_pod_with_merged_mappings(tmp_path):
    text = "a: &a {name: s, args: [vllm, serve, b]}\nb: &b {<<: *a}\nspec: {containers: [{<<: *b, env: []}]}\n"
    [given] = read(tmp_path, "pod.yaml", text)
    assert (given.part, given.words) == (", container s", ("b",))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_files_with_and_without_a_byte_order_mark(tmp_path, encoding):
    for name, text in (("server.env", "A=é\n"), ("x.yaml", "services: {x: {env_file: server.env}}\n")):
        (tmp_path / name).write_text(text, encoding=encoding)
        [given] = manifests.read_manifest(tmp_path / name)
        assert values(given) == {"A": "é"}


KUBERNETES = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {VLLM_A: "1"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: llm}
spec:
  template:
    spec:
      initContainers:
      - {name: check, image: x, command: [fi-doctor, check]}
      containers:
      - name: server
        image: x
        command: [bash, -c]
        args:
        - |
          export B=2
          vllm serve openai/gpt-oss-20b \\
            --tensor-parallel-size 8
        envFrom:
        - configMapRef: {name: settings}
        - secretRef: {name: token}
        env:
        - {name: C, value: "3"}
        - name: D
          valueFrom: {secretKeyRef: {name: token, key: d}}
"""


def test_a_manifest_of_kubernetes(tmp_path):
    first, server = read(tmp_path, "deploy.yaml", KUBERNETES)
    assert first.part == "Deployment llm, container check"
    assert values(server) == {"VLLM_A": "1", "C": "3", "D": None, "B": "2"}
    assert server.words == ("openai/gpt-oss-20b", "--tensor-parallel-size", "8")
    assert server.unread == {"envFrom": "a secret is not in this file"}
    assert server.origin == f"{tmp_path / 'deploy.yaml'} (Deployment llm, container server)"


def test_pods_within_something_else(tmp_path):
    text = (
        "kind: RayService\nspec:\n  groups:\n  - template: {spec: {containers: [{name: a, args: [vllm, serve, b]}]}}\n"
    )
    [given] = read(tmp_path, "ray.yaml", text)
    assert (given.part, given.words) == ("RayService, container a", ("b",))


def test_a_file_of_variables(tmp_path):
    [given] = read(tmp_path, "server.env", "# a comment\n\nexport A='x y'\nB=1 # why\nC=\n")
    assert values(given) == {"A": "x y", "B": "1", "C": ""}
    assert given.variables["A"].line == 3


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("server.env", "A=1\nno such line\n", "line 2: 'no such line'"),
        ("server.env", '{"A":"1"}\n', """line 1: '{"A":"1"}'"""),
        ("x.yaml", "a: [1", "is no YAML"),
        ("x.yaml", "{{ if .Values.a }}\na: 1\n{{ end }}\n", "helm template"),
        ("x.yaml", "a: 1\n", "neither services"),
        ("x.yaml", "", "neither services"),
        ("x.yaml", "- 1\n", "neither services"),
        ("x.yaml", "a: &a [*a]\n", ""),
        ("x.yaml", "[" * 5000, ""),
        ("x.yaml", "a: &a [1]\n" + "".join(f"b{n}: &b{n} [{'*a, ' * 9}*a]\n" for n in range(3)), "neither services"),
        ("x.txt", "hello\n", "is no manifest that is known"),
        ("x.yaml", "a: &a {<<: *a}\n", "nested too deeply"),
        ("x.yaml", "a: 1\nservices: {<<: 1}\n", "line 2: `<<` merges something else than mappings"),
        ("x.yaml", "services: {<<: [{}, 1]}\n", "line 1: `<<` merges"),
        ("x.yaml", "services: {llm: 1}\n", None),
        ("x.yaml", "services: [llm]\n", "starts no container"),
        ("x.yaml", "spec: {containers: {a: 1}}\n", "starts no container"),
    ],
)
def test_files_that_are_none(tmp_path, name, text, said):
    if said is None:
        [given] = read(tmp_path, name, text)
        assert given.variables == {}
        return
    with pytest.raises(DataError) as caught:
        read(tmp_path, name, text)
    assert said in str(caught.value)


def test_aliases_that_would_fill_the_memory_are_refused(tmp_path):
    rows = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(DataError):
        read(tmp_path, "x.yaml", "\n".join(rows))


@pytest.mark.parametrize("data", [b"\xff\xfea", b"\x00" * 10])
def test_files_that_are_no_text(tmp_path, data):
    (tmp_path / "x.yaml").write_bytes(data)
    with pytest.raises(DataError):
        manifests.read_manifest(tmp_path / "x.yaml")
    with pytest.raises(DataError):
        manifests.read_manifest(tmp_path / "absent.yaml")
    with pytest.raises(DataError):
        manifests.read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("written", "value"),
    [("'$A'", "$A"), ('"$A"', "1"), (r'"\$A"', "$A"), (r"\$A", "$A"), ('"it\'s $A"', "it's 1"), ("$B", None)],
)
def test_what_docker_puts_into_a_variable(tmp_path, written, value):
    [given] = read(tmp_path, "Dockerfile", f"FROM x\nENV A=1\nENV C={written}\n")
    assert values(given)["C"] == value


@pytest.mark.parametrize("levels", [7, 40, 400])
def test_variables_that_are_put_into_each_other_without_end_are_not_known(tmp_path, levels):
    grown = "".join(f"ENV A{n + 1}=${{A{n}}}${{A{n}}}${{A{n}}}\n" for n in range(levels))
    [given] = read(tmp_path, "Dockerfile", f"FROM x\nENV A0=xxxxxxxxxx\n{grown}ENV B=${{A5}}\nENV C=$A5$A5\n")
    assert values(given)["B"] == "x" * 10 * 3**5
    assert (values(given)["C"], values(given)[f"A{levels}"]) == (None, None)


@pytest.mark.parametrize(
    ("written", "value"),
    [("$(id)", None), ("`id`", None), ("${A}", None), ('"$A"', None), ("'$A'", "$A"), ("1 # c", "1"), ("", "")],
)
def test_what_a_shell_would_put_into_a_variable_is_not_known(tmp_path, written, value):
    [given] = read(tmp_path, "a.env", f"A=1\nexport C={written}\n")
    assert values(given) == {"A": "1", "C": value}


@pytest.mark.parametrize(
    ("image", "release"),
    [
        ("vllm/vllm-openai:v0.33.0", ("vllm", "0.33.0")),
        ("mirror.corp:5000/vllm/vllm-openai:v0.14.0-x86_64@sha256:0af3", ("vllm", "0.14.0")),
        ("lmsysorg/sglang:v0.5.1.post3-cu126", ("sglang", "0.5.1.post3")),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai", None),
        ("vllm/vllm-openai:${TAG:-v0.33.0}", None),
        ("ours/vllm-openai:v1.2.0", None),
        ("", None),
    ],
)
def test_the_tag_of_a_projects_own_image_names_a_release(image, release):
    assert release_of(image) == release
