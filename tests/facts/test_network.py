"""Whether anything could be downloaded: tables of routes and variables, and never the network."""

import factory as make
import pytest

from fi_doctor.facts.network import has_default_route, read_network
from fi_doctor.model import Missing

HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
OUT = "eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
NEAR = "eth0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
REFUSED = "*\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0\n"
ZERO = "0" * 32
OUT6 = f"{ZERO} 00 {ZERO} 00 fe80000000000000000000000000000a 00000064 00000001 00000000 00000003     eth0\n"
LO6 = f"{ZERO} 00 {ZERO} 00 {ZERO} ffffffff 00000001 00000000 00200200       lo\n"


@pytest.mark.parametrize(
    ("route", "ipv6", "leads"),
    [
        (HEAD + NEAR + OUT, "", True),
        (HEAD + NEAR, LO6, False),
        (HEAD + REFUSED, "", False),
        (HEAD, OUT6, True),
        (HEAD, "", False),
        ("", "", False),
        ("cut\noff\t00000000\n", f"{ZERO} 00\n", False),
    ],
    ids=["ipv4", "near only", "refused", "ipv6", "none", "empty", "cut off"],
)
def test_a_default_route_leads_out(route, ipv6, leads):
    assert has_default_route(route, ipv6) is leads


@pytest.fixture
def proc(tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "net/route").write_text(HEAD + NEAR)
    return tmp_path


def test_the_tables_of_the_process_are_read(proc):
    assert read_network(make.missing(), {}, proc).default_route is False
    (proc / "net/ipv6_route").write_text(OUT6)
    assert read_network(make.missing(), {}, proc).default_route is True


def test_a_table_that_cannot_be_read_is_missing(tmp_path):
    assert isinstance(read_network(make.missing(), {}, tmp_path).default_route, Missing)


@pytest.mark.parametrize(("version", "said"), [("0.5.3", ""), ("0.7.2.post1", "FLASHINFER_NO_DOWNLOAD is set")])
def test_a_variable_counts_only_where_the_installed_source_reads_it(unpacked, proc, version, said):
    flashinfer = make.flashinfer(version, root=str(unpacked(version)))
    environ = {"FLASHINFER_NO_DOWNLOAD": "1", "HF_HUB_OFFLINE": "1"}
    assert read_network(flashinfer, environ, proc).no_download == said
    assert read_network(flashinfer, {"HF_HUB_OFFLINE": "1"}, proc).no_download == ""


def test_proxies_and_a_repository_on_the_disk_are_told(proc):
    environ = {
        "https_proxy": "http://user:secret@proxy:3128",
        "NO_PROXY": "x",
        "FLASHINFER_CUBINS_REPOSITORY": str(proc),
    }
    network = read_network(make.missing(), environ, proc)
    assert (network.proxies, network.repository_is_local) == (("https_proxy",), True)
    assert "secret" not in repr(network)
    assert (
        read_network(make.missing(), {"FLASHINFER_CUBINS_REPOSITORY": "https://x"}, proc).repository_is_local is False
    )
