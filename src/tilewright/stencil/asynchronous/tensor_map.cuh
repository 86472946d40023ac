/* cuTensorMapEncodeTiled's: a matrix in device memory and the box that one copy takes. */
struct ALIGNED(64) tensor_map {
    unsigned long long opaque[16];
};
