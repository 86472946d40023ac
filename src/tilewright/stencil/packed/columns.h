/* EACH_COLUMN(M) writes M(0) M(1) ... M(MICRO_N - 1).

   The micro-kernel needs every accumulator as a variable with a name of its own: PoCL keeps
   arrays in memory, and a loop over named variables is something only the preprocessor
   can write. */
#define COLUMNS_1(M) M(0)
#define COLUMNS_2(M) COLUMNS_1(M) M(1)
#define COLUMNS_3(M) COLUMNS_2(M) M(2)
#define COLUMNS_4(M) COLUMNS_3(M) M(3)
#define COLUMNS_5(M) COLUMNS_4(M) M(4)
#define COLUMNS_6(M) COLUMNS_5(M) M(5)
#define COLUMNS_7(M) COLUMNS_6(M) M(6)
#define COLUMNS_8(M) COLUMNS_7(M) M(7)
#define COLUMNS_9(M) COLUMNS_8(M) M(8)
#define COLUMNS_10(M) COLUMNS_9(M) M(9)
#define COLUMNS_11(M) COLUMNS_10(M) M(10)
#define COLUMNS_12(M) COLUMNS_11(M) M(11)
#define COLUMNS_13(M) COLUMNS_12(M) M(12)
#define COLUMNS_14(M) COLUMNS_13(M) M(13)
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define EACH_COLUMN(M) PASTE(COLUMNS_, MICRO_N)(M)

/* The same for the vectors of one column: EACH_ROW(M, j) writes M(0, j) M(1, j) ... */
#define ROWS_1(M, j) M(0, j)
#define ROWS_2(M, j) ROWS_1(M, j) M(1, j)
#define ROWS_3(M, j) ROWS_2(M, j) M(2, j)
#define ROWS_4(M, j) ROWS_3(M, j) M(3, j)
#define ROW_PASTE_(a, b) a##b
#define ROW_PASTE(a, b) ROW_PASTE_(a, b)
#define EACH_ROW(M, j) ROW_PASTE(ROWS_, MICRO_VECTORS)(M, j)
