"""``import torch`` with the package installed: what it costs, and that it cannot break."""

import os
import subprocess
import sys


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("NETREDUCE_")}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_import_torch_loads_nothing_heavy() -> None:
    result = python(
        "import threading, sys, torch\n"
        "heavy = [name for name in ('grpc', 'netreduce.host_agent._c10d') if name in sys.modules]\n"
        "print(threading.active_count(), heavy)\n"
        "import torch.distributed as dist\n"
        "from torch.distributed import distributed_c10d\n"
        "print(dist.Backend('netreduce'), distributed_c10d.ProcessGroupGloo is dist.ProcessGroupGloo)"
    )
    assert result.stdout == "1 []\nnetreduce True\n", result


def test_only_a_controller_makes_it_stand_in_for_gloo() -> None:
    code = (
        "import torch.distributed as dist\n"
        "from torch.distributed import distributed_c10d\n"
        "stand_in = distributed_c10d.ProcessGroupGloo\n"
        "print(stand_in is not dist.ProcessGroupGloo, issubclass(dist.ProcessGroupGloo, stand_in), "
        "hasattr(stand_in, 'create_device'))"
    )
    result = python(code, NETREDUCE_CONTROLLER="127.0.0.1:1")
    assert result.stdout == "True True True\n", result


def test_both_native_modules_load_into_one_process() -> None:
    result = python(
        "import torch\n"
        "from netreduce.host_agent import _c10d, _datapath\n"
        "for module in (_datapath, _c10d):\n"
        "    try:\n"
        "        module.bind_udp('192.0.2.1', 20050, 1)\n"
        "    except module.WireError as error:\n"
        "        print(type(error).__module__)"
    )
    assert result.stdout.split() == ["netreduce.host_agent._datapath", "netreduce.host_agent._c10d"], result


def test_a_broken_registration_is_one_warning() -> None:
    code = (
        "import sys, types\n"
        "broken = types.ModuleType('netreduce.host_agent.registration')\n"
        "sys.modules['netreduce.host_agent.registration'] = broken\n"
        "import torch\n"
        "print(torch.ones(2).sum().item())"
    )
    result = python(code)
    assert result.returncode == 0 and result.stdout == "2.0\n", result
    assert result.stderr.count("netreduce: torch.distributed stays as it is") == 1, result


def test_a_broken_native_module_means_plain_gloo() -> None:
    code = (
        "import sys\n"
        "sys.modules['netreduce.host_agent._c10d'] = None\n"
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "dist.all_reduce(t := torch.ones(1))\n"
        "print(type(dist.group.WORLD._get_backend(torch.device('cpu'))) is dist.ProcessGroupGloo)"
    )
    result = python(code, NETREDUCE_CONTROLLER="127.0.0.1:1")
    assert result.stdout == "True\n", result
    assert result.stderr.count("netreduce: using plain Gloo") == 1, result


def test_importing_the_package_after_torch_registers_without_autoload() -> None:
    result = python(
        "import torch, netreduce.host_agent\nprint(torch.distributed.is_backend_available('netreduce'))",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert result.stdout == "True\n", result


def test_importing_the_package_does_not_import_torch() -> None:
    result = python("import sys, netreduce.host_agent\nprint('torch' in sys.modules)")
    assert result.stdout == "False\n", result


def test_debug_detail_wraps_the_backend_and_checks_over_plain_gloo() -> None:
    code = (
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "wrapper = dist.group.WORLD._get_backend(torch.device('cpu'))\n"
        "print(type(wrapper).__name__, type(wrapper.wrapped_pg).__name__)\n"
        "dist.all_reduce(t := torch.ones(2)); print(t.tolist())\n"
        "dist.destroy_process_group()"
    )
    result = python(code, NETREDUCE_CONTROLLER="127.0.0.1:1", TORCH_DISTRIBUTED_DEBUG="DETAIL")
    assert result.stdout == "_ProcessGroupWrapper NetReduceBackend\n[1.0, 1.0]\n", result
