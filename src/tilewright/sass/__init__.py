"""What the compiler made of a kernel: decode machine code, find its main loop, say what bounds it.

Pure Python and NumPy over the cubin's bytes; needs neither a GPU nor any NVIDIA program.
"""

from tilewright.sass.annotate import annotate, verdict
from tilewright.sass.cycles import LoopCycles, loop_cycles
from tilewright.sass.decode import decode
from tilewright.sass.edit import RefusedError, edit, patch
from tilewright.sass.elf import Cubin, Kernel, read_cubin
from tilewright.sass.instruction import Control, Guard, Instruction, Operand
from tilewright.sass.lanes import Accesses, lane_offsets, loop_accesses
from tilewright.sass.lines import LinePairs
from tilewright.sass.loops import Loop, ffma_share, find_loops, main_loop
from tilewright.sass.machine import Machine
from tilewright.sass.occupancy import Occupancy, occupancy
from tilewright.sass.ports import Ports, PortUse, port_use
from tilewright.sass.report import Inspection, inspect_kernel
from tilewright.sass.resources import Resources, resources
from tilewright.sass.shared import wavefronts
from tilewright.sass.simulate import simulate
from tilewright.sass.trace import k_loop, steady_trace

__all__ = [
    "Accesses",
    "Control",
    "Cubin",
    "Guard",
    "Inspection",
    "Instruction",
    "Kernel",
    "LinePairs",
    "Loop",
    "LoopCycles",
    "Machine",
    "Occupancy",
    "Operand",
    "PortUse",
    "Ports",
    "RefusedError",
    "Resources",
    "annotate",
    "decode",
    "edit",
    "ffma_share",
    "find_loops",
    "inspect_kernel",
    "k_loop",
    "lane_offsets",
    "loop_accesses",
    "loop_cycles",
    "main_loop",
    "occupancy",
    "patch",
    "port_use",
    "read_cubin",
    "resources",
    "simulate",
    "steady_trace",
    "verdict",
    "wavefronts",
]
