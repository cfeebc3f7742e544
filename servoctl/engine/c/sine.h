/* Sine and cosine without branches, with an error below one unit in the last place: they take half of a plant's time,
   and libm computes one lane at a time. Above SINE_LIMIT, and if x is not finite, libm is called.

   The argument less the nearest multiple of pi/2, in three parts of pi/2, then the polynomials of fdlibm on
   [-pi/4, pi/4]: k_sin.c and k_cos.c, Copyright (C) 1993 by Sun Microsystems, Inc. All rights reserved. Developed at
   SunSoft, a Sun Microsystems, Inc. business. Permission to use, copy, modify, and distribute this software is freely
   granted, provided that this notice is preserved. */
#define SINE_LIMIT 1e5

/* The rest of x in two parts, |rest| <= pi/4; returns a number whose last bits count the quarter turns. */
static inline V quarter_turns(V x, V* rest, V* tail) {
  const double round = 6755399441055744.0; /* 1.5 * 2^52: what is added to it loses its fraction */
  V turns = x * 6.36619772367581382433e-01 + round, count = turns - round;
  V first = x - count * 1.57079632673412561417e+00;
  V second = count * 6.07710050630396597660e-11, left = first - second;
  V third = count * 2.02226624879595063154e-21 - ((first - left) - second);
  *rest = left - third;
  *tail = (left - *rest) - third;
  return turns;
}

static inline V sine_near_zero(V x, V tail) {
  V z = x * x, w = z * z, cube = z * x;
  V r = (8.33333333332248946124e-03 + z * (-1.98412698298579493134e-04 + z * 2.75573137070700676789e-06))
      + z * w * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10);
  return x - ((z * (0.5 * tail - cube * r) - tail) - cube * -1.66666666666666324348e-01);
}

static inline V cosine_near_zero(V x, V tail) {
  V z = x * x, w = z * z, half = 0.5 * z, one = 1.0 - half;
  V r = z * (4.16666666666666019037e-02 + z * (-1.38888888888741095749e-03 + z * 2.48015872894767294178e-05))
      + w * w * (-2.75573143513906633035e-07 + z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11));
  return one + (((1.0 - one) - half) + (z * r - x * tail));
}

/* Sine of x, or its cosine: the sine a quarter turn later. */
#define SINE(name, later) \
  static inline V v_##name(V x) { \
    V rest, tail, turns = quarter_turns(x, &rest, &tail); \
    M quarter = bits(turns) + later; \
    V y = select((quarter & 1) != 0, cosine_near_zero(rest, tail), sine_near_zero(rest, tail)); \
    y = from_bits(bits(y) ^ ((quarter & 2) << 62)); \
    M far = invert(v_fabs(x) < SINE_LIMIT); \
    if (__builtin_expect(any(far), 0)) for (int k = 0; k < LANES; ++k) if (LANE(far, k)) LANE(y, k) = name(LANE(x, k)); \
    return y; \
  }
SINE(sin, 0)
SINE(cos, 1)

/* Sine and cosine of x, the same to the bit, in less time. */
static inline void v_sine_cosine(V x, V y[2]) {
  V rest, tail, turns = quarter_turns(x, &rest, &tail);
  const M quarter = bits(turns), odd = (quarter & 1) != 0;
  const V sine = sine_near_zero(rest, tail), cosine = cosine_near_zero(rest, tail);
  y[0] = from_bits(bits(select(odd, cosine, sine)) ^ ((quarter & 2) << 62));
  y[1] = from_bits(bits(select(odd, sine, cosine)) ^ (((quarter + 1) & 2) << 62));
  const M far = invert(v_fabs(x) < SINE_LIMIT);
  if (__builtin_expect(any(far), 0))
    for (int k = 0; k < LANES; ++k) if (LANE(far, k)) LANE(y[0], k) = sin(LANE(x, k)), LANE(y[1], k) = cos(LANE(x, k));
}
