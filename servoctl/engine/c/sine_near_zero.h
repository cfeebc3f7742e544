/* Parts of sine and cosine, of numbers T.

   The argument less the nearest multiple of pi/2, in three parts of pi/2, then the polynomials of fdlibm on
   [-pi/4, pi/4]: k_sin.c and k_cos.c, Copyright (C) 1993 by Sun Microsystems, Inc. All rights reserved. Developed at
   SunSoft, a Sun Microsystems, Inc. business. Permission to use, copy, modify, and distribute this software is freely
   granted, provided that this notice is preserved. */

/* The rest of x in two parts, |rest| <= pi/4; returns a number whose last bits count the quarter turns. */
static inline T OF(quarter_turns)(T x, T* rest, T* tail) {
  const double round = 6755399441055744.0; /* 1.5 * 2^52: what is added to it loses its fraction */
  T turns = x * 6.36619772367581382433e-01 + round, count = turns - round;
  T first = x - count * 1.57079632673412561417e+00;
  T second = count * 6.07710050630396597660e-11, left = first - second;
  T third = count * 2.02226624879595063154e-21 - ((first - left) - second);
  *rest = left - third;
  *tail = (left - *rest) - third;
  return turns;
}

static inline T OF(sine_near_zero)(T x, T tail) {
  T z = x * x, w = z * z, cube = z * x;
  T r = (8.33333333332248946124e-03 + z * (-1.98412698298579493134e-04 + z * 2.75573137070700676789e-06))
      + z * w * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10);
  return x - ((z * (0.5 * tail - cube * r) - tail) - cube * -1.66666666666666324348e-01);
}

static inline T OF(cosine_near_zero)(T x, T tail) {
  T z = x * x, w = z * z, half = 0.5 * z, one = 1.0 - half;
  T r = z * (4.16666666666666019037e-02 + z * (-1.38888888888741095749e-03 + z * 2.48015872894767294178e-05))
      + w * w * (-2.75573143513906633035e-07 + z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11));
  return one + (((1.0 - one) - half) + (z * r - x * tail));
}
