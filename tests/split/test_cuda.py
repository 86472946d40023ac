"""The texts compile for CUDA, and use what they should: no spills, wide loads."""

from __future__ import annotations

import pytest

from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.library.split.product import HopperProduct, Parts, Work
from tilewright.precision import precision
from tilewright.problem import Trans
from tilewright.sass import decode_kernel_text
from tilewright.stencil import Variant, stencils
from tilewright.stencil.split import SCHEMES, Texts
from tilewright.stencil.split.texts import Stored
