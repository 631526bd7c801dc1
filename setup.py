"""Packages and native parts; everything else is in pyproject.toml."""

import os
import sys
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


def one_unit(sources: list[str], target: Path) -> str:
    """A translation unit that includes all ``sources``, given below host_agent/csrc; returns its path.

    Reading torch's headers takes most of the time of a compilation, and this way they are read once.
    """
    text = "".join(f'#include "{source}"\n' for source in sources)
    if not target.exists() or target.read_text() != text:  # keep its time when nothing changes
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return str(target)


def native_extensions() -> tuple[list, dict]:
    """The datapath (pybind11, torch-free) and the c10d backend (built against the installed torch)."""
    csrc = Path("host_agent/csrc")
    datapath = sorted(str(p) for p in (csrc / "datapath").glob("**/*.cc"))
    if not datapath:
        return [], {}
    import pybind11
    from setuptools import Extension
    from torch.utils.cpp_extension import BuildExtension, CppExtension, include_paths

    # ninja is installed beside this interpreter; torch looks for it on PATH.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    # Ranks may be built for different processors and must round alike: no fused multiply-add. Nobody looks
    # at floating-point exceptions, and conversions vectorise only when the compiler knows it.
    flags = ["-O3", "-march=native", "-ffp-contract=off", "-fno-trapping-math"]
    flags += ["-Wall", "-Wextra", "-fvisibility=hidden"]
    # Absolute, because ninja compiles elsewhere.
    includes = [str(folder.resolve()) for folder in (csrc, Path("softswitch/csrc"))]
    depends = sorted(str(p) for p in csrc.glob("**/*") if p.suffix in (".h", ".cc"))
    depends.append("softswitch/csrc/shm_port.h")
    build_folder = Path("build", f"native-{sys.implementation.cache_tag}")

    class BuildNative(BuildExtension):
        """Compiles the datapath once for both extensions, and only what changed."""

        def finalize_options(self) -> None:
            if self.build_temp is None:
                # An editable install would otherwise compile everything anew in a temporary folder.
                self.build_temp = str(build_folder)
            super().finalize_options()

        def build_extension(self, extension: Extension) -> None:
            if extension is c10d:
                extension.extra_objects = self.compiler.object_filenames(datapath, output_dir=self.build_temp)
            super().build_extension(extension)

    backend = sorted(p.relative_to(csrc).as_posix() for p in (csrc / "torch").glob("*.cc"))
    c10d = CppExtension(
        "netreduce.host_agent._c10d",
        [one_unit(backend, build_folder / "c10d.cc")],
        include_dirs=includes,
        # torch's headers are not clean under -Wextra; as system headers they need not be.
        extra_compile_args=[*flags, *(f"-isystem{path}" for path in include_paths())],
        depends=depends,
    )
    module = Extension(
        "netreduce.host_agent._datapath",
        [*datapath, str(csrc / "python" / "datapath_module.cc")],
        include_dirs=[*includes, pybind11.get_include()],
        extra_compile_args=["-std=c++17", *flags],
        depends=depends,
        language="c++",
    )
    return [module, c10d], {"build_ext": BuildNative}


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
