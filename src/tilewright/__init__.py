"""Tilewright bounds, generates, tunes, explains and serves GEMM kernels.

Everything is imported on first use: ``import tilewright`` itself costs almost nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilewright.version import VERSION

if TYPE_CHECKING:
    from tilewright.backend import devices
    from tilewright.portfolio.find import reload
    from tilewright.portfolio.tuned import tune
    from tilewright.precision import Precision
    from tilewright.problem import Problem, Trans
    from tilewright.serve.arenas import release
    from tilewright.serve.bound import bound
    from tilewright.serve.decision import Decision
    from tilewright.serve.double_double import DoubleDouble
    from tilewright.serve.epilogue.serve import Epilogue
    from tilewright.serve.find import device
    from tilewright.serve.gemm import gemm
    from tilewright.serve.grouped.serve import grouped_gemm
    from tilewright.serve.linear import lu_factor, lu_solve, scaled_residual
    from tilewright.serve.matmul import matmul
    from tilewright.serve.routes.residues.decision import CertificateError
    from tilewright.serve.syrk import herk, syrk
    from tilewright.tuning.inspection import inspect_config

__version__ = VERSION

_HOMES = {
    "CertificateError": "tilewright.serve.routes.residues.decision",
    "Decision": "tilewright.serve.decision",
    "DoubleDouble": "tilewright.serve.double_double",
    "Epilogue": "tilewright.serve.epilogue.serve",
    "Precision": "tilewright.precision",
    "Problem": "tilewright.problem",
    "Trans": "tilewright.problem",
    "bound": "tilewright.serve.bound",
    "device": "tilewright.serve.find",
    "devices": "tilewright.backend",
    "gemm": "tilewright.serve.gemm",
    "grouped_gemm": "tilewright.serve.grouped.serve",
    "herk": "tilewright.serve.syrk",
    "inspect_config": "tilewright.tuning.inspection",
    "lu_factor": "tilewright.serve.linear",
    "lu_solve": "tilewright.serve.linear",
    "matmul": "tilewright.serve.matmul",
    "scaled_residual": "tilewright.serve.linear",
    "release": "tilewright.serve.arenas",
    "reload": "tilewright.portfolio.find",
    "syrk": "tilewright.serve.syrk",
    "tune": "tilewright.portfolio.tuned",
}

__all__ = [
    "CertificateError",
    "Decision",
    "DoubleDouble",
    "Epilogue",
    "Precision",
    "Problem",
    "Trans",
    "bound",
    "device",
    "devices",
    "gemm",
    "grouped_gemm",
    "herk",
    "inspect_config",
    "lu_factor",
    "lu_solve",
    "matmul",
    "release",
    "reload",
    "scaled_residual",
    "syrk",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
