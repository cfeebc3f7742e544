/* Sine and cosine without branches, with an error below one unit in the last place: they take half of a plant's time,
   and libm computes one lane at a time. Above SINE_LIMIT, and if x is not finite, libm is called. */
#define SINE_LIMIT 1e5

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

/* Four sines and four cosines of four numbers, the same to the bit. */
#if defined(PACKED)
static inline void v_sines_cosines(const V x[4], V y[8]) {
  const Pack at = {x[0], x[1], x[2], x[3]};
  Pack rest, tail, turns = pack_quarter_turns(at, &rest, &tail);
  const Marks quarter = (Marks) turns, odd = (quarter & 1) != 0;
  const Marks sine = (Marks) pack_sine_near_zero(rest, tail), cosine = (Marks) pack_cosine_near_zero(rest, tail);
  PACK(y, 0) = (Pack) (((odd & cosine) | (~odd & sine)) ^ ((quarter & 2) << 62));
  PACK(y, 4) = (Pack) (((odd & sine) | (~odd & cosine)) ^ (((quarter + 1) & 2) << 62));
  const Marks near = (Pack) ((Marks) at & 0x7fffffffffffffffLL) < SINE_LIMIT;
  if (__builtin_expect(!(near[0] & near[1] & near[2] & near[3]), 0))
    for (int k = 0; k < 4; ++k) if (!near[k]) y[k] = sin(x[k]), y[k + 4] = cos(x[k]);
}
#else
static inline void v_sines_cosines(const V x[4], V y[8]) {
  for (int k = 0; k < 4; ++k) {
    V both[2];
    v_sine_cosine(x[k], both);
    y[k] = both[0], y[k + 4] = both[1];
  }
}
#endif
