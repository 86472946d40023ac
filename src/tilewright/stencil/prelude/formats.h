/* Formats that C has no types of, by the macros ELEMENT and OUTPUT: of A and B, and of C. */
#define ELEMENT_F16 1
#define ELEMENT_BF16 2
#define ELEMENT_TF32 3
#define ELEMENT_S8 4
#define ELEMENT_E4M3 5
#define ELEMENT_E5M2 6
#define OUTPUT_F32 1
#define OUTPUT_F16 2
#define OUTPUT_BF16 3
#define OUTPUT_S32 4
#define OUTPUT_RESIDUES 5
