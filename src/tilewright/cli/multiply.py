"""``tilewright multiply``: the product of two matrices in files."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from tilewright.cli.output import (
    MATRICES,
    PRECISIONS,
    DevicesOption,
    JsonOption,
    TransOption,
    emit_json,
    gigaflops,
    output_option,
    parse_devices,
    progress_bar,
    say,
)
from tilewright.text import shown

if TYPE_CHECKING:
    from tilewright.precision import Precision

__all__ = ["check_not_read", "check_suffix", "command", "kind_of", "load", "load_as", "save"]

# Bytes of files that are not read into memory first.
_LEAST_MAPPED = 32 << 20


def command(
    a: Annotated[Path, typer.Argument(help="A, .npy; or .npz, double-double.")],
    b: Annotated[Path, typer.Argument(help="B, a file like A's.")],
    output: Annotated[Path, output_option("Where C goes, a file like A's.", MATRICES)],
    c: Annotated[Path | None, typer.Option("--c", help="C to scale by beta.")] = None,
    trans: TransOption = "NN",
    alpha: Annotated[str, typer.Option(help="Scales the product; 1+2j for complex.")] = "1",
    beta: Annotated[str, typer.Option(help="Scales C.")] = "0",
    precision: Annotated[
        str | None, typer.Option("--precision", help=f"Convert first: {PRECISIONS}.")
    ] = None,
    accuracy: Annotated[
        str,
        typer.Option(
            "--accuracy",
            help="ieee; s and c: fp32 or tf32; d and z: fp64; double-double: accurate or fast.",
        ),
    ] = "ieee",
    device: DevicesOption = None,
    json: JsonOption = False,
) -> None:
    """Compute C = alpha op(A) op(B) + beta C from .npy files, or .npz files of hi and lo."""
    from tilewright.precision import precision as find_precision
    from tilewright.problem import pair_of
    from tilewright.serve.gemm import gemm

    trans_a, trans_b = pair_of(trans)
    row = find_precision(precision) if precision else None
    check_not_read(output, a, b)
    matrices = [load_as(path, row, mapped=True) for path in (a, b)]
    one, other = map(kind_of, matrices)
    if one != other:
        raise ValueError(f"{a} holds {one} but {b} {other}; name one --precision for both")
    matrices.append(None if c is None else load_as(c, row, mapped=True, is_result=True))
    check_suffix(output, hasattr(matrices[0], "words"))
    out = None
    if row is not None and row.is_short:
        out = row.result_name if row.element_bytes <= 2 else None
    if row is not None and accuracy == "ieee":
        accuracy = {"f": "fast", "v": "fast", "tf32": "tf32"}.get(row.letter, accuracy)
    scale, keep = _scalar("alpha", alpha, matrices[0]), _scalar("beta", beta, matrices[0])
    with _written(output, matrices, trans_a, trans_b, keep) as (target, put), _bar(quiet=json):
        started = time.perf_counter()
        result = gemm(
            matrices[0],
            matrices[1],
            target,
            alpha=scale,
            beta=keep,
            trans_a=trans_a,
            trans_b=trans_b,
            accuracy=accuracy,
            out_dtype=out,
            device=parse_devices(device),
        )
        seconds = time.perf_counter() - started
        put(result)
    inner = matrices[0].shape[-2 if trans_a != "N" else -1]
    facts = {
        "output": str(output),
        "shape": list(result.shape),
        "dtype": kind_of(result),
        "seconds": seconds,
    }
    if json:
        emit_json(facts)
        return
    complex_result = result.dtype.kind == "c" or getattr(result, "is_complex", False)
    flops = (8 if complex_result else 2) * math.prod(result.shape) * inner
    say(
        f"{output}: {' x '.join(map(str, result.shape))} {kind_of(result)},"
        f" {seconds:.3f} s with compilation ({gigaflops(flops / seconds)})"
    )


@contextmanager
def _bar(*, quiet: bool) -> Iterator[None]:
    """Show how many tiles of C are computed, of a product that passes through a device in tiles."""
    from tilewright.serve.streamed.progress import told

    bar = progress_bar(quiet=quiet)
    with bar, told(lambda done, of: bar.update(task, completed=done, total=of, visible=True)):
        task = bar.add_task("tiles of C", total=None, visible=False)
        yield


@contextmanager
def _written(
    output: Path, matrices: Sequence[Any], trans_a: str, trans_b: str, beta: Any
) -> Iterator[tuple[Any, Callable[[Any], None]]]:
    """Give what C is computed in, or None, and what puts the result into the output.

    Plain arrays are computed in the file itself, memory-mapped under another name until all is
    there: C may be larger than the memory.
    """
    from tilewright.paths import written_atomically
    from tilewright.problem import Trans
    from tilewright.serve.arrange import shapes_of

    given = [x for x in matrices if x is not None]
    alike = all(_is_plain(x) and x.dtype == given[0].dtype for x in given)
    if alike and not (matrices[2] is None and beta != 0):
        operations = Trans.parse(trans_a, "trans_a"), Trans.parse(trans_b, "trans_b")
        first, second, third = matrices
        batch, m, n, _ = shapes_of(first, second, third, *operations)
        if 0 not in (*batch, m, n):
            with written_atomically(output) as file:
                target = _mapped(file, (*batch, m, n), given[0].dtype)
                if third is not None:
                    target[...] = third
                yield target, lambda result: None
            return
    c = matrices[2]
    yield None if c is None else c.copy(), lambda result: save(output, result)


def _is_plain(array: Any) -> bool:
    """Whether it is a NumPy array of what `gemm` computes in place, matrices or a batch."""
    import numpy as np

    known = isinstance(array, np.ndarray) and array.dtype.kind in "fc"
    return known and array.dtype.itemsize >= 4 and array.dtype.isnative and array.ndim >= 2


def _mapped(file: BinaryIO, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return the array of a new .npy file; all of its room on the disk is taken before.

    Raises
    ------
    OSError
        If the disk has too little room: to find out later would end the process.
    """
    import numpy as np

    header = {"shape": shape, "fortran_order": False, "descr": np.lib.format.dtype_to_descr(dtype)}
    np.lib.format.write_array_header_1_0(file, header)
    file.flush()
    start, size = file.tell(), math.prod(shape) * dtype.itemsize
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), start, size)
    else:
        file.truncate(start + size)
    mapped: Any = np.memmap(file, dtype, "r+", start, shape)
    return np.asarray(mapped)


def check_not_read(output: Path, *inputs: Path) -> None:
    """Refuse to write what is read, by whatever name: it could not be multiplied again.

    C may be its own result, as in BLAS.
    """
    for one in inputs:
        if output.exists() and one.exists() and output.samefile(one):
            raise ValueError(f"output={str(output)!r} is the input {one}; name another file")


def check_suffix(output: Path, is_pairs: bool) -> None:
    """Refuse a name by which the file would be read as something else."""
    if is_pairs != (output.suffix == ".npz"):
        what, suffix = ("double-double", ".npz") if is_pairs else ("one plain array", ".npy")
        raise ValueError(f"output={str(output)!r} is to hold {what}; end its name in {suffix}")


def kind_of(result: Any) -> str:
    """Return what elements are, for people."""
    if not hasattr(result, "words"):
        return str(result.dtype)
    return "double-double complex" if result.is_complex else "double-double"


def _scalar(name: str, text: str, matrix: Any) -> Any:
    if hasattr(matrix, "words") and "j" not in text.lower():
        return text  # to all its digits
    try:
        value = complex(text)
    except ValueError:
        raise ValueError(f"{name}={text!r} is not a number; write 2, 0.5 or 1+2j") from None
    if math.isinf(abs(value)) and "inf" not in text.lower():
        raise ValueError(f"{name}={shown(text)} is beyond float64; scale the matrices instead")
    return value if value.imag else value.real


def load_as(
    path: Path, row: Precision | None, *, mapped: bool = False, is_result: bool = False
) -> Any:
    """Return the matrix in a file, converted to a precision, or to its results', if one is given.

    A large one may be memory-mapped and not to be written to.

    Raises
    ------
    ValueError
        If the file holds something else, or another precision would lose digits of it.
    OSError
        If it cannot be read.
    """
    from tilewright.serve.double_double import DoubleDouble

    if path.suffix == ".npz":
        if row is not None and row.parts == 1:
            raise ValueError(f"precision={row.letter!r} loses digits of {path}; leave it out")
        array: Any = DoubleDouble.load(path)
    else:
        wanted = None
        if row is not None and row.parts == 1:
            wanted = row.result_dtype if is_result else row.dtype
        array = load(path, wanted, mapped)
    if row is None or row.parts == 1:
        return array
    made = DoubleDouble(array)
    if made.is_complex and not row.is_complex:
        raise ValueError(f"precision={row.letter!r} is real but {path} is complex; use w or v")
    return made + DoubleDouble(0j) if row.is_complex and not made.is_complex else made


def load(path: Path, dtype: Any = None, mapped: bool = False) -> Any:
    """Return the array in an .npy file, memory-mapped if wanted and large; nothing is unpickled.

    A file of bfloat16 or FP8 numbers has their bytes alone, without the type: `dtype` names it.

    Raises
    ------
    ValueError
        If the file holds no plain array of numbers, or complex ones and `dtype` is real.
    OSError
        If it cannot be read.
    """
    from tokenize import TokenError
    from zipfile import BadZipFile

    import numpy as np

    from tilewright.precision import precision_of
    from tilewright.serve.narrow.types import NARROW, type_name

    try:
        if mapped and path.stat().st_size >= _LEAST_MAPPED:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            with path.open("rb") as file:
                array = np.load(file, mmap_mode=None, allow_pickle=False)
    except (ValueError, EOFError, BadZipFile, SyntaxError, TokenError):  # of a header's text
        raise ValueError(f"{path} is not an .npy file of numbers") from None
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{path} holds several arrays; give an .npy file of one")
    array = np.asarray(array)  # a plain one, whoever has its memory
    if not array.dtype.isnative:  # of a machine that has bytes in another order
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind == "V" and array.dtype.names is None:  # ml_dtypes' numbers are saved so
        if type_name(dtype) in NARROW and array.dtype.itemsize == np.dtype(dtype).itemsize:
            return array.view(dtype)
        raise ValueError(
            f"{path} holds {array.dtype}: bytes whose type .npy does not keep, as of bfloat16 and"
            " FP8; name it, such as --precision bf16, or save it as float32"
        )
    if dtype is None:
        return array
    if array.dtype.kind not in "biufc":
        raise ValueError(f"{path} holds {array.dtype}, not numbers; give an .npy file of numbers")
    if array.dtype.kind == "c" and np.dtype(dtype).kind != "c":
        letter = precision_of(dtype).letter
        raise ValueError(f"precision={letter!r} is real but {path} is complex; use c or z")
    if np.dtype(dtype).kind not in "iu" or array.dtype == dtype:
        return array.astype(dtype, copy=False)
    with np.errstate(invalid="ignore"):
        whole = array.astype(dtype)
    if not np.array_equal(whole, array):
        raise ValueError(f"{path} holds numbers that {whole.dtype} has not; round and clip them")
    return whole


def save(path: Path, array: Any) -> None:
    """Write an .npy file, or an .npz one of pairs, all of it or nothing."""
    import numpy as np

    from tilewright.paths import written_atomically

    if hasattr(array, "words"):
        array.save(path)
        return
    with written_atomically(path) as file:
        np.save(file, array, allow_pickle=False)
