# A recipe for Spack: put it into a repository of yours as packages/torc/package.py. Not built by the tests.
from spack.package import *


class Torc(Package):
    """Workflows of shell jobs that recover by themselves, on a laptop or a Slurm cluster."""

    # The directory of the packages of `cargo xtask dist`, or where they were put.
    url = "file:///opt/mirror/@ARCHIVE@"

    license("MIT OR Apache-2.0")

    version("@VERSION@", sha256="@SHA256@")

    requires("platform=linux")

    def install(self, spec, prefix):
        install_tree("bin", prefix.bin)
        install_tree("share", prefix.share)
