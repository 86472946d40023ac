"""What the compiler made of a kernel: decode machine code, find its main loop, say what bounds it.

Pure Python and NumPy over the cubin's bytes; needs neither a GPU nor any NVIDIA program.
"""

from tilewright.sass.annotate import annotate
from tilewright.sass.cycles import loop_cycles
from tilewright.sass.decode import decode
from tilewright.sass.edit import RefusedError, edit, patch
from tilewright.sass.elf import Kernel, read_cubin
from tilewright.sass.instruction import Instruction
from tilewright.sass.lanes import loop_accesses
from tilewright.sass.loops import Loop, ffma_share, find_loops, main_loop
from tilewright.sass.machine import Machine
from tilewright.sass.occupancy import occupancy
from tilewright.sass.ports import Ports
from tilewright.sass.report import Inspection, inspect_kernel
from tilewright.sass.resources import resources
from tilewright.sass.shared import wavefronts
from tilewright.sass.simulate import simulate
from tilewright.sass.trace import steady_trace

__all__ = [
    "Inspection",
    "Instruction",
    "Kernel",
    "Loop",
    "Machine",
    "Ports",
    "RefusedError",
    "annotate",
    "decode",
    "edit",
    "ffma_share",
    "find_loops",
    "inspect_kernel",
    "loop_accesses",
    "loop_cycles",
    "main_loop",
    "occupancy",
    "patch",
    "read_cubin",
    "resources",
    "simulate",
    "steady_trace",
    "wavefronts",
]
