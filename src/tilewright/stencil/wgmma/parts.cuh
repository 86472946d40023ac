/* What kernels are made of. */

#include "wgmma/words.cuh"

#include "wgmma/ptx.cuh"
#include "wgmma/stages.cuh"
#include "wgmma/tiles.cuh"
#include "wgmma/produce.cuh"
#include "wgmma/multiply.cuh"
#include "wgmma/cluster_k.cuh"
#include "wgmma/epilogue.cuh"
#include "wgmma/store.cuh"
#include "wgmma/residues.cuh"
#include "wgmma/parallel_split_k.cuh"
