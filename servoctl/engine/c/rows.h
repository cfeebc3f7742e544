/* Rows of numbers. A sum has four parts that do not wait for one another. */
#define ROOM(count) (count)
#define LEVEL(i) (i)

/* y = count numbers of x, step apart. */
static inline void fill(V* y, const V* x, int step, int count) {
  for (int i = 0; i < count; ++i) y[i] = x[i * step];
}

/* The sum of a[i] * b[i]. */
static inline V dot(const V* a, const V* b, int count) {
  V part[4] = {number(0.0), number(0.0), number(0.0), number(0.0)};
  for (int i = 0; i < count; ++i) part[i % 4] += a[i] * b[i];
  return (part[0] + part[2]) + (part[1] + part[3]);
}

/* y = factor * x */
static inline void scale(V* y, V factor, const V* x, int count) {
  for (int i = 0; i < count; ++i) y[i] = factor * x[i];
}

/* y -= factor * x */
static inline void reduce(V* y, V factor, const V* x, int count) {
  for (int i = 0; i < count; ++i) y[i] -= factor * x[i];
}

/* y = factors[0] * row 0 + factors[step] * row 1 + .. in this order, or y -= each of them; rows lie ROOM(count) apart. */
static inline void gather_rows(V* y, int plus, const V* factors, int step, const V* x, int rows, int count) {
  for (int i = 0; plus && i < count; ++i) y[i] = number(0.0);
  for (int k = 0; k < rows; ++k)
    for (int i = 0; i < count; ++i) {
      if (plus) y[i] += factors[k * step] * x[k * count + i];
      else y[i] -= factors[k * step] * x[k * count + i];
    }
}
