import pytest
from msgspec.structs import replace

from fi_doctor.model import (
    Depth,
    Gpu,
    JitToolkit,
    Missing,
    Nvcc,
    Package,
    ProbeSpec,
    Request,
    Requires,
)
from fi_doctor.probing import catalog
from fi_doctor.probing.plan import missing_tool, plan

NO = Missing(reason="no such thing")
SPEC = ProbeSpec(
    id="norm.rmsnorm",
    feature="norm.rmsnorm",
    path="/p/norm_rmsnorm.py",
    origin="fi-doctor",
    question="?",
    module="norm",
    requires=Requires(),
    variants={},
    gpus=1,
    timeout_s=1,
    build_timeout_s=1,
    compiles=("nvcc",),
    has_build=True,
    checks_numbers=True,
)


def gpu(uuid, sm, index=0):
    return Gpu(
        nvml_index=index,
        cuda_index=index,
        uuid=uuid,
        name="GPU",
        sm=sm,
        memory_total_mib=1,
        memory_free_mib=1,
        mig=False,
        pci_bus=NO,
    )


def package(name, version="2.11.0"):
    return Package(name=name, version=version, location="/site", editable=False, commit=NO, requires=(), shadowed=())


@pytest.fixture
def hopper(bare_facts, flashinfer_facts):
    """A machine with one SM90 GPU on which everything is installed."""
    nvcc = Nvcc(
        path="/cuda/bin/nvcc",
        resolved="/cuda/bin/nvcc",
        found_by="CUDA_HOME",
        version="13.0",
        build="13.0.88",
        architectures=("sm_90a",),
    )
    jit = JitToolkit(
        cuda_home="/cuda", found_by="CUDA_HOME", nvcc=nvcc, compiler=nvcc, headers={}, libraries={}, cccl=NO
    )
    return replace(
        bare_facts,
        gpus=replace(bare_facts.gpus, gpus=(gpu("GPU-a", 90),), cuda_order=("GPU-a",)),
        toolkit=replace(bare_facts.toolkit, jit=jit, gate_version="13.0"),
        packages={"torch": package("torch")},
        flashinfer=flashinfer_facts,
    )


@pytest.fixture
def laptop(hopper):
    """The same without a GPU: FlashInfer builds for the architecture that it is told."""
    return replace(hopper, gpus=replace(hopper.gpus, gpus=NO, cuda_order=Missing(reason="no libcuda.so.1")))


def one(facts, spec=SPEC, depth=Depth.RUN, features=()):
    [planned] = plan([spec], facts, Request(depth=depth, features=features))
    return planned


def test_a_probe_runs_on_the_gpu(hopper):
    planned = one(hopper)
    assert (planned.depth, planned.sm, planned.gpu_uuids, planned.variants, planned.skip) == (
        Depth.RUN,
        90,
        ("GPU-a",),
        ("",),
        "",
    )


def test_each_compute_capability_is_planned_once_in_order(hopper):
    gpus = (gpu("GPU-b", 100), gpu("GPU-a", 90, 1), gpu("GPU-c", 100, 2), gpu("GPU-hidden", 80, 3))
    facts = replace(hopper, gpus=replace(hopper.gpus, gpus=gpus, cuda_order=("GPU-b", "GPU-a", "GPU-c")))
    planned = plan([SPEC], facts, Request(depth=Depth.RUN))
    assert [(probe.sm, probe.gpu_uuids) for probe in planned] == [(90, ("GPU-a",)), (100, ("GPU-b",))]


@pytest.mark.parametrize(("most", "given"), [(0, 2), (3, 3), (8, 4)])
def test_a_probe_is_given_as_many_gpus_as_it_needs_or_can_use(hopper, most, given):
    gpus = tuple(gpu(f"GPU-{index}", 90, index) for index in range(4))
    facts = replace(hopper, gpus=replace(hopper.gpus, gpus=gpus, cuda_order=tuple(one.uuid for one in gpus)))
    planned = one(facts, spec=replace(SPEC, gpus=2, most_gpus=most))
    assert planned.gpu_uuids == tuple(f"GPU-{index}" for index in range(given))


@pytest.mark.parametrize(
    ("count", "tried", "why"),
    [
        (4, ("two", "four"), {}),
        (2, ("two",), {"four": "needs 4 GPUs of one kind, 2 seen"}),
        (1, ("two", "four"), {}),  # of all variants it is said alike
    ],
)
def test_a_variant_that_needs_more_gpus_than_there_are_is_left_out(hopper, count, tried, why):
    gpus = tuple(gpu(f"GPU-{index}", 90, index) for index in range(count))
    facts = replace(hopper, gpus=replace(hopper.gpus, gpus=gpus, cuda_order=tuple(one.uuid for one in gpus)))
    planned = one(
        facts, spec=replace(SPEC, gpus=2, most_gpus=4, variants={"two": Requires(), "four": Requires(gpus=4)})
    )
    assert (planned.variants, planned.skipped_variants) == (tried, why)
    assert planned.skip == ("" if count > 1 else "not run, only built: needs 2 GPUs of one kind, 1 seen")


def test_only_matching_features_are_planned_by_id(hopper):
    specs = [replace(SPEC, id=name, feature=name) for name in ("rope.apply", "norm.b", "norm.a")]
    planned = plan(specs, hopper, Request(depth=Depth.RUN, features=("norm.*",)))
    assert [probe.spec.id for probe in planned] == ["norm.a", "norm.b"]


def test_at_depth_static_nothing_is_tried(hopper):
    planned = one(hopper, depth=Depth.STATIC)
    assert (planned.depth, planned.skip) == (Depth.STATIC, "nothing is built or run at depth static")


def test_without_a_gpu_it_is_only_built_and_says_why(laptop):
    planned = one(laptop)
    assert (planned.depth, planned.sm, planned.gpu_uuids) == (Depth.BUILD, 90, ())
    assert planned.skip == "not run, only built: CUDA sees no GPU"


def test_a_build_that_was_asked_for_is_not_limited(laptop):
    planned = one(laptop, depth=Depth.BUILD)
    assert (planned.depth, planned.skip) == (Depth.BUILD, "")


def test_what_hides_every_gpu_leaves_none(hopper):
    assert one(replace(hopper, gpus=replace(hopper.gpus, cuda_order=()))).skip == (
        "not run, only built: CUDA sees no GPU"
    )


def test_too_few_gpus_is_only_built(hopper):
    planned = one(hopper, spec=replace(SPEC, gpus=2))
    assert (planned.depth, planned.gpu_uuids) == (Depth.BUILD, ())
    assert planned.skip == "not run, only built: needs 2 GPUs of one kind, 1 seen"


def test_a_probe_without_need_of_a_gpu_runs_anywhere_once(bare_facts):
    planned = one(bare_facts, spec=replace(SPEC, gpus=0, module="", has_build=False), depth=Depth.BUILD)
    assert (planned.depth, planned.sm) == (Depth.RUN, Missing(reason="this probe needs no GPU"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"jit": NO}, "no CUDA toolkit: no such thing"),
        ({"ninja": NO}, "no ninja: no such thing"),
        ({"host_compiler": NO}, "no host compiler: no such thing"),
    ],
    ids=["toolkit", "ninja", "compiler"],
)
def test_without_tools_nothing_is_built_but_on_a_gpu_it_is_tried(hopper, laptop, change, reason):
    planned = one(replace(laptop, toolkit=replace(laptop.toolkit, **change)))
    assert planned.depth is Depth.STATIC
    assert planned.skip == f"CUDA sees no GPU; it cannot be built either: {reason}"
    assert one(replace(laptop, toolkit=replace(laptop.toolkit, **change)), depth=Depth.BUILD).skip == (
        f"cannot be built: {reason}"
    )
    assert one(replace(hopper, toolkit=replace(hopper.toolkit, **change))).depth is Depth.RUN


def test_a_module_that_is_there_needs_no_tools(laptop):
    facts = replace(laptop, toolkit=replace(laptop.toolkit, jit=NO, ninja=NO))
    facts = replace(facts, flashinfer=replace(facts.flashinfer, cached_modules=("norm",)))
    assert one(facts).depth is Depth.BUILD


def test_without_an_architecture_nothing_is_built(laptop):
    facts = replace(laptop, flashinfer=replace(laptop.flashinfer, architectures=Missing(reason="no GPU, no list")))
    planned = one(facts, depth=Depth.BUILD)
    assert (planned.depth, planned.sm) == (Depth.STATIC, Missing(reason="no GPU, no list"))
    assert planned.skip == ("no GPU is seen and FLASHINFER_CUDA_ARCH_LIST names no architecture")


def test_with_several_architectures_the_capability_is_not_known(laptop):
    facts = replace(laptop, flashinfer=replace(laptop.flashinfer, architectures=("90a", "120f")))
    planned = one(facts, depth=Depth.BUILD)
    assert (planned.depth, planned.sm) == (Depth.BUILD, Missing(reason="FlashInfer builds for 90a, 120f"))
    wants = replace(SPEC, requires=Requires(sm=">=120"))
    assert one(facts, spec=wants, depth=Depth.BUILD).depth is Depth.BUILD
    assert one(facts, spec=replace(SPEC, requires=Requires(sm="<90")), depth=Depth.BUILD).depth is Depth.STATIC


@pytest.mark.parametrize(
    ("compiles", "reason"),
    [(("nvcc",), "it has nothing to build"), (("triton",), "it is compiled only when it is called")],
    ids=["nothing", "lazily"],
)
def test_what_has_no_build_is_not_built(laptop, compiles, reason):
    planned = one(laptop, spec=replace(SPEC, has_build=False, compiles=compiles), depth=Depth.BUILD)
    assert (planned.depth, planned.skip) == (Depth.STATIC, f"cannot be built: {reason}")


@pytest.mark.parametrize(
    ("requires", "reason"),
    [
        (Requires(sm=">=100"), "needs compute capability >=100, this is 90"),
        (Requires(flashinfer=">=0.8"), "needs FlashInfer >=0.8, found 0.7.2.post1"),
        (Requires(nvcc=">=13.1"), "needs nvcc >=13.1, found 13.0"),
        (
            Requires(symbols=("flashinfer.norm.gone",)),
            "the installed FlashInfer has no flashinfer.norm.gone: no def in norm",
        ),
        (Requires(packages={"torch": ">=3"}), "needs torch >=3, found 2.11.0"),
        (Requires(packages={"triton": ""}), "triton is not installed in /bin/python"),
        (Requires(packages={"triton": ">=3"}), "needs triton>=3: not installed in /bin/python"),
        (Requires(packages={"scipy": ""}), "needs scipy, and whether it is installed was not read"),
    ],
    ids=["sm", "flashinfer", "nvcc", "symbol", "package-version", "package-missing", "range-missing", "package-unread"],
)
def test_a_requirement_that_is_not_met_skips_with_its_reason(hopper, requires, reason):
    facts = replace(
        hopper,
        packages={**hopper.packages, "triton": Missing(reason="not installed in /bin/python")},
        flashinfer=replace(
            hopper.flashinfer, symbols={"flashinfer.norm.gone": Missing(reason="no def in norm", absent=True)}
        ),
    )
    planned = one(facts, spec=replace(SPEC, requires=requires))
    assert (planned.depth, planned.skip) == (Depth.STATIC, reason)


@pytest.mark.parametrize(
    "requires",
    [
        Requires(sm=">=90,<100"),
        Requires(flashinfer=">=0.7,<0.8"),
        Requires(nvcc=">=12.8"),
        Requires(symbols=("flashinfer.norm.not_looked_for",)),
        Requires(packages={"torch": ""}),
    ],
    ids=["sm", "flashinfer", "nvcc", "symbol", "package"],
)
def test_a_requirement_that_is_met_is_no_obstacle(hopper, requires):
    assert one(hopper, spec=replace(SPEC, requires=requires)).depth is Depth.RUN


def test_a_nightly_is_inside_a_range(hopper):
    facts = replace(hopper, flashinfer=replace(hopper.flashinfer, version="0.7.3.dev20261101"))
    assert one(facts, spec=replace(SPEC, requires=Requires(flashinfer=">=0.7"))).depth is Depth.RUN


def test_variants_are_judged_one_by_one(hopper):
    spec = replace(SPEC, variants={"a": Requires(), "b": Requires(sm=">=100")})
    planned = one(hopper, spec=spec)
    assert (planned.depth, planned.variants) == (Depth.RUN, ("a",))
    assert planned.skipped_variants == {"b": "needs compute capability >=100, this is 90"}


def test_a_probe_none_of_whose_variants_applies_is_skipped(hopper):
    planned = one(hopper, spec=replace(SPEC, variants={"b": Requires(sm=">=100")}))
    assert (planned.depth, planned.variants) == (Depth.STATIC, ())
    assert planned.skip == "none of its variants applies here: needs compute capability >=100, this is 90"


@pytest.mark.parametrize("absent", ["torch", "flashinfer"])
def test_without_the_stack_nothing_of_it_is_tried(hopper, absent):
    facts = replace(hopper, flashinfer=NO) if absent == "flashinfer" else replace(hopper, packages={"torch": NO})
    planned = one(facts)
    words = {"torch": "torch is not installed", "flashinfer": "FlashInfer is not installed"}[absent]
    assert (planned.depth, planned.skip) == (Depth.STATIC, f"{words}: no such thing")


ABSENT = Missing(reason="not installed in /bin/python")


@pytest.mark.parametrize(
    ("packages", "torch", "flashinfer"),
    [
        ({"torch": ABSENT, "flashinfer-python": ABSENT}, "torch", "torch"),
        ({"torch": package("torch"), "flashinfer-python": ABSENT}, "", "flashinfer-python"),
        ({"torch": ABSENT, "flashinfer-python": package("flashinfer-python")}, "torch", "torch"),
        ({"torch": package("torch", NO), "flashinfer-python": package("flashinfer-python", NO)}, "", ""),
    ],
    ids=["neither", "torch-only", "flashinfer-only", "both"],
)
def test_an_import_is_tried_where_the_package_is_there_whatever_is_wrong_with_it(hopper, packages, torch, flashinfer):
    specs = [spec for spec in catalog.discover() if spec.feature.startswith("import.")]
    facts = replace(hopper, packages=packages)
    skips = {planned.spec.id: planned.skip for planned in plan(specs, facts, Request(depth=Depth.RUN))}
    assert skips == {
        "import.torch": f"{torch} is not installed in /bin/python" if torch else "",
        "import.flashinfer": f"{flashinfer} is not installed in /bin/python" if flashinfer else "",
    }


def test_a_reason_that_names_the_interpreter_is_not_said_twice(hopper):
    facts = replace(hopper, packages={"torch": ABSENT})
    assert one(facts).skip == "torch is not installed in /bin/python"


def test_a_gpu_of_unknown_capability_runs_what_asks_for_none(hopper):
    facts = replace(hopper, gpus=replace(hopper.gpus, cuda_order=("MIG-1",)))
    assert one(facts).depth is Depth.RUN
    assert one(facts, spec=replace(SPEC, requires=Requires(sm=">=100"))).skip == (
        "needs compute capability >=100, and it is not known here: NVML does not list this GPU"
    )


def test_a_malformed_architecture_list_is_named_as_such(laptop):
    bad = Missing(reason='FLASHINFER_CUDA_ARCH_LIST "9.0a;10.0a" is not a list that this FlashInfer can read')
    facts = replace(laptop, flashinfer=replace(laptop.flashinfer, architectures=bad))
    facts = replace(facts, environment={"FLASHINFER_CUDA_ARCH_LIST": "9.0a;10.0a"})
    assert one(facts, depth=Depth.BUILD).skip == f"cannot be built: no architecture to build for: {bad.reason}"


def test_a_slice_of_a_gpu_has_the_capability_of_the_sliced_ones(hopper):
    gpus = tuple(replace(gpu, mig=True, sm=90) for gpu in hopper.gpus.gpus)
    facts = replace(hopper, gpus=replace(hopper.gpus, gpus=gpus, cuda_order=("MIG-1",)))
    assert one(facts).sm == 90


SILENT = Missing(reason="/cuda/bin/nvcc did not answer --version within 5 s")


@pytest.mark.parametrize("machine", ["hopper", "laptop"])
def test_what_a_compiler_that_hangs_would_build_is_not_tried_and_says_so(machine, request):
    facts = request.getfixturevalue(machine)
    jit = replace(facts.toolkit.jit, nvcc=replace(facts.toolkit.jit.nvcc, version=SILENT))
    silent = replace(facts, toolkit=replace(facts.toolkit, jit=jit))
    assert (one(silent).depth, one(silent).skip) == (Depth.STATIC, SILENT.reason)
    assert one(silent, replace(SPEC, has_build=False, gpus=0)).depth is Depth.RUN
    prebuilt = replace(silent, flashinfer=replace(facts.flashinfer, jit_cache_modules=("norm",)))
    assert one(prebuilt).skip != SILENT.reason
    assert missing_tool(silent) == ("a compiler hangs", SILENT.reason)


def test_a_host_compiler_that_hangs_is_named(hopper):
    silent = Missing(reason="c++ did not answer --version within 5 s")
    facts = replace(hopper, toolkit=replace(hopper.toolkit, host_compiler_version=silent))
    assert one(facts).skip == silent.reason
