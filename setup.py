"""Packages and native parts; everything else is in pyproject.toml."""

from pathlib import Path

from setuptools import setup

ROOTS = {
    "netreduce.p4": "p4src",
    "netreduce.softswitch": "softswitch",
    "netreduce.controller": "controller",
    "netreduce.host_agent": "host_agent",
    "netreduce.topologies": "bmv2_topologies",
}


def packages() -> list[str]:
    """All Python packages below the roots, under their import names."""
    found = []
    for name, folder in ROOTS.items():
        for init in sorted(Path(folder).rglob("__init__.py")):
            parts = init.parent.relative_to(folder).parts
            found.append(".".join([name, *parts]))
    return found


def native_extensions() -> tuple[list, dict]:
    """The datapath (pybind11, torch-free) and the c10d backend (built against the installed torch)."""
    sources = sorted(str(p) for p in Path("host_agent/csrc/datapath").glob("**/*.cc"))
    if not sources:
        return [], {}
    import pybind11
    from setuptools import Extension
    from torch.utils.cpp_extension import BuildExtension, CppExtension, include_paths

    # Ranks may be built for different processors and must round alike: no fused multiply-add. Nobody looks
    # at floating-point exceptions, and conversions vectorise only when the compiler knows it.
    flags = ["-std=c++17", "-O3", "-march=native", "-ffp-contract=off", "-fno-trapping-math"]
    flags += ["-Wall", "-Wextra", "-fvisibility=hidden"]
    # Absolute, because ninja compiles elsewhere.
    includes = [str(Path(folder).resolve()) for folder in ("host_agent/csrc", "softswitch/csrc")]
    headers = sorted(str(p) for p in Path("host_agent/csrc").glob("**/*.h"))
    depends = [*headers, "softswitch/csrc/shm_port.h"]
    extensions = [
        Extension(
            "netreduce.host_agent._datapath",
            [*sources, "host_agent/csrc/python/datapath_module.cc"],
            include_dirs=[*includes, pybind11.get_include()],
            extra_compile_args=flags,
            depends=depends,
            language="c++",
        )
    ]
    backend = sorted(str(p) for p in Path("host_agent/csrc/torch").glob("*.cc"))
    if backend:
        extensions.append(
            CppExtension(
                "netreduce.host_agent._c10d",
                [*sources, *backend],
                include_dirs=includes,
                # torch's headers are not clean under -Wextra; as system headers they need not be.
                extra_compile_args=[f for f in flags if f != "-std=c++17"]
                + [f"-isystem{path}" for path in include_paths()],
                depends=depends,
            )
        )
    return extensions, {"build_ext": BuildExtension}


extensions, commands = native_extensions()
setup(
    packages=packages(),
    package_data={
        "netreduce.p4": ["*.p4", "include/*.p4", "build/*"],
        "netreduce.softswitch": ["csrc/**/*.h", "csrc/**/*.c"],
    },
    ext_modules=extensions,
    cmdclass=commands,
)
