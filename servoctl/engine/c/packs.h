/* Rows of numbers, of which gcc and clang take four at once. A row has room for whole packs, and what lies behind its end
   is finite. The functions are those of rows.h, to the bit. */
typedef double Pack __attribute__((vector_size(32), aligned(8), may_alias));
typedef Bits Marks __attribute__((vector_size(32))); /* of comparisons: -1 or 0 */
#define ROOM(count) (((count) + 3) / 4 * 4)
#define LEVEL(i) ((i) / 4 * 4) /* start of the pack of entry i */
#define PACK(x, i) (*(Pack*) ((x) + (i)))
#define GIVEN(x, i) (*(const Pack*) ((x) + (i)))
static inline Pack spread(V x) { return (Pack){x, x, x, x}; }

/* y = count numbers of x, step apart, and zeros behind them. */
static inline void fill(V* y, const V* x, int step, int count) {
  for (int i = 0; i < count; i += 4) {
    const int left = count - i;
    const V* at = x + i * step;
    PACK(y, i) = (Pack){at[0], left > 1 ? at[step] : 0.0, left > 2 ? at[2 * step] : 0.0, left > 3 ? at[3 * step] : 0.0};
  }
}

/* The sum of a[i] * b[i]. */
static inline V dot(const V* a, const V* b, int count) {
  Pack total = GIVEN(a, 0) * GIVEN(b, 0);
  for (int i = 4; i < count; i += 4) total += GIVEN(a, i) * GIVEN(b, i);
  return (total[0] + total[2]) + (total[1] + total[3]);
}

/* y = factor * x */
static inline void scale(V* y, V factor, const V* x, int count) {
  for (int i = 0; i < count; i += 4) PACK(y, i) = spread(factor) * GIVEN(x, i);
}

/* y -= factor * x */
static inline void reduce(V* y, V factor, const V* x, int count) {
  for (int i = 0; i < count; i += 4) PACK(y, i) -= spread(factor) * GIVEN(x, i);
}

/* y = factors[0] * row 0 + factors[step] * row 1 + .. in this order, or y -= each of them; rows lie ROOM(count) apart. */
static inline void gather_rows(V* y, int plus, const V* factors, int step, const V* x, int rows, int count) {
  const int room = ROOM(count);
  for (int i = 0; i < room; i += 16) {
    const int left = room - i;
    Pack a = spread(0.0), b = a, c = a, d = a;
    if (!plus) a = PACK(y, i);
    if (!plus && left > 4) b = PACK(y, i + 4);
    if (!plus && left > 8) c = PACK(y, i + 8);
    if (!plus && left > 12) d = PACK(y, i + 12);
    for (int k = 0; k < rows; ++k) {
      const V* row = x + k * room + i;
      const Pack factor = spread(factors[k * step]);
      a = plus ? a + factor * GIVEN(row, 0) : a - factor * GIVEN(row, 0);
      if (left > 4) b = plus ? b + factor * GIVEN(row, 4) : b - factor * GIVEN(row, 4);
      if (left > 8) c = plus ? c + factor * GIVEN(row, 8) : c - factor * GIVEN(row, 8);
      if (left > 12) d = plus ? d + factor * GIVEN(row, 12) : d - factor * GIVEN(row, 12);
    }
    PACK(y, i) = a;
    if (left > 4) PACK(y, i + 4) = b;
    if (left > 8) PACK(y, i + 8) = c;
    if (left > 12) PACK(y, i + 12) = d;
  }
}
