/* The number V of generated code: a double, or LANES of them side by side, one run in each lane.

   Every lane takes the operations of the scalar code in the same order, so its results are the same to the bit: the
   compiler flags forbid contraction, and functions of libm are called lane by lane. */

/* Before each long function without loops: -O3 takes gcc twice as long there and gains nothing;
   packs made of single statements make the law of two arms 10 % slower (gcc 12.2). */
#if defined(__clang__)
#define LONG_STRAIGHT_LINE __attribute__((noinline))
#elif defined(__GNUC__) && defined(__OPTIMIZE__)
#define LONG_STRAIGHT_LINE __attribute__((noinline, optimize("O1", "ira-algorithm=priority")))
#else
#define LONG_STRAIGHT_LINE
#endif

typedef long long Bits;
typedef double Scalar; /* one lane of V */
#if LANES == 1
typedef double V;
typedef Bits M; /* of a comparison: 1 or 0 */
#if defined(__GNUC__)
#define PACKED
#endif
#define LANE(v, k) (v)
#define invert(m) (!(m))
static inline V number(double x) { return x; }
static inline V select(M m, V a, V b) { return m ? a : b; }
static inline V keep(M m, V a) { return m ? a : 0.0; }
static inline M bits(V x) { M m; memcpy(&m, &x, sizeof m); return m; }
static inline V from_bits(M m) { V x; memcpy(&x, &m, sizeof x); return x; }
static inline int any(M m) { return m != 0; }
#else
typedef double V __attribute__((vector_size(LANES * sizeof(double))));
typedef Bits M __attribute__((vector_size(LANES * sizeof(double)))); /* of a comparison: -1 or 0 */
#define SIDE_BY_SIDE 1
#define LANE(v, k) ((v)[k])
#define invert(m) (~(m))
static inline V number(double x) { return x - (V){0.0}; }
static inline V select(M m, V a, V b) { return (V)((m & (M)a) | (~m & (M)b)); }
static inline V keep(M m, V a) { return (V)(m & (M)a); }
static inline M bits(V x) { return (M)x; }
static inline V from_bits(M m) { return (V)m; }
static inline int any(M m) {
  Bits part[LANES], found = 0;
  memcpy(part, &m, sizeof m);
  for (int k = 0; k < LANES; ++k) found |= part[k];
  return found != 0;
}
#endif

#define FUNCTION(name) \
  static inline V v_##name(V x) { V y; for (int k = 0; k < LANES; ++k) LANE(y, k) = name(LANE(x, k)); return y; }
#define FUNCTION2(name) \
  static inline V v_##name(V x, V z) { \
    V y; for (int k = 0; k < LANES; ++k) LANE(y, k) = name(LANE(x, k), LANE(z, k)); return y; }

FUNCTION(sqrt) FUNCTION(tan) FUNCTION(asin) FUNCTION(acos) FUNCTION(atan) FUNCTION(sinh) FUNCTION(cosh) FUNCTION(tanh)
FUNCTION(asinh) FUNCTION(acosh) FUNCTION(atanh) FUNCTION(exp) FUNCTION(log) FUNCTION(expm1) FUNCTION(log1p)
FUNCTION(floor) FUNCTION(ceil) FUNCTION(erf)
FUNCTION2(atan2) FUNCTION2(hypot) FUNCTION2(pow) FUNCTION2(fmod) FUNCTION2(copysign)

static inline V v_fabs(V x) { return from_bits(bits(x) & 0x7fffffffffffffffLL); }
/* As C's fmin and fmax: of a number and a NaN the number; of 0 and -0 the second argument. */
static inline V v_fmax(V x, V y) { return select((x > y) | (y != y), x, y); }
static inline V v_fmin(V x, V y) { return select((x < y) | (y != y), x, y); }
static inline V v_sign(V x) { return select(x < 0.0, number(-1.0), select(x > 0.0, number(1.0), x)); }
static inline M sound(V x) { return v_fabs(x) <= 1.7976931348623157e308; }
