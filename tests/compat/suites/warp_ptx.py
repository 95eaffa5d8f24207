"""Imported before Warp's own tests: kernels as PTX, since machine code for cards cannot run on a CPU."""

import warp as wp

wp.config.cuda_output = "ptx"
wp.config.quiet = True
