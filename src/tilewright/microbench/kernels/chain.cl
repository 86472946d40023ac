/* A chain of integer operations on one core, each of which waits for the one before.

   An exclusive or and an addition of registers take one cycle each on every x86-64 and ARM core
   (A. Fog, "Instruction tables"; Arm, "Cortex-A76 software optimization guide"), and no compiler
   may join them: 16 cycles a trip.  Comes after a dialect's prelude.  Macro: TRIPS. */
#define STEP value = (value ^ x) + y;
KERNEL void chain(GLOBAL uint *out, const uint x, const uint y)
{
    uint value = x;
    for (int trip = 0; trip < TRIPS; ++trip) {
        STEP STEP STEP STEP STEP STEP STEP STEP
    }
    out[BLOCK_ID] = value;
}
