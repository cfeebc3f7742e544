/* One period of a realistic run: noise, delay and lag between law and plant, as in Python, lane by lane. Macros to
   define before it is included, besides those of steps.h:

   COORDINATES, INPUTS, EARLIEST, LATEST, LAGGED of `DelayLayout`; LAW_PARAMETERS: their number, which the simulated
   plant has too.

   x holds what is integrated, the torques if LAGGED, and LATEST commands, the newest first, each with its delay.
   p holds the law's parameters, those of the simulated plant, and those of the realism in the order of the enum. */
#define SENT (INPUTS + 1)
#define STRETCHES (LATEST - EARLIEST + 1)
#define OF_PLANT (p + LAW_PARAMETERS)
#define OF_REALISM (p + 2 * LAW_PARAMETERS)
enum {
  NOISE = 0, RESOLUTION = 2 * COORDINATES, LAG = 4 * COORDINATES, LOWER = LAG + INPUTS, UPPER = LOWER + INPUTS,
  DELAY = UPPER + INPUTS, JITTER, EVERY
};

/* Measured q and v: with noise, rounded to the resolution; a resolution of 0 rounds nothing. */
static void measure(const V* x, const V* r, const V* w, V* seen) {
  for (int i = 0; i < 2 * COORDINATES; ++i) {
    V value = x[i], size = r[RESOLUTION + i];
#if RANDOM
    value = value + r[NOISE + i] * w[i];
#endif
    M fine = size <= 0.0;
    V rounded = size * v_floor(value / select(fine, number(1.0), size) + 0.5);
    seen[i] = select(fine, value, rounded);
  }
}

/* The torque right after the command u begins to act: it jumps to u, or stays if it lags. */
static void lag(const V* torque, const V* u, const V* r, V* now) {
  for (int i = 0; i < INPUTS; ++i) now[i] = select(r[LAG + i] > 0.0, torque[i], u[i]);
}

/* The torque half a length and a whole length later: a first-order lag. With that halfway the rule of Simpson, and so a
   step of Runge-Kutta, gives the exact impulse, also of a lag that is shorter than the step. */
static void follow(const V* torque, const V* u, V length, const V* r, V* halfway, V* last) {
  for (int i = 0; i < INPUTS; ++i) {
    M slow = r[LAG + i] > 0.0;
    V lag = select(slow, r[LAG + i], number(1.0)), decay = keep(slow, v_exp(-length / lag));
    V mean = lag / length * (1.0 - decay);
    halfway[i] = u[i] + (torque[i] - u[i]) * keep(slow & (length > 0.0), (6.0 * mean - 1.0 - decay) / 4.0);
    last[i] = u[i] + (torque[i] - u[i]) * decay;
  }
}

/* The command that acts: inputs u, and the rest of the row as the law returned it. */
static void hold(const V* from_law, const V* u, V* command) {
  for (int i = 0; i < COMMAND; ++i) command[i] = i < INPUTS ? u[i] : from_law[i];
}

/* The row at t and x' there; the commands on their way, and the times in the period from which each of them acts. */
static void begin_period(const V* x, V t, V h, const V* p, const V* w, V* rates, V* row, V* sent, V* begins) {
  const V *r = OF_REALISM, *torque = x + STATE, *kept = torque + LAGGED * INPUTS;
  V seen[STATE];
  measure(x, r, w, seen);
  for (int i = 2 * COORDINATES; i < STATE; ++i) seen[i] = x[i];
  CONTROL(&t, seen, p, row);
  for (int i = 0; i < INPUTS; ++i) sent[i] = v_fmin(v_fmax(row[i], r[LOWER + i]), r[UPPER + i]);
  sent[INPUTS] = r[DELAY];
#if RANDOM
  sent[INPUTS] = sent[INPUTS] + r[JITTER] * w[2 * COORDINATES];
#endif
  for (int i = 0; i < LATEST * SENT; ++i) sent[SENT + i] = kept[i];
  V acting[INPUTS];
  for (int j = 0; j < STRETCHES; ++j) {
    const V* command = sent + (LATEST - j) * SENT;
    begins[j] = j ? v_fmin(v_fmax(command[INPUTS] - (double)(LATEST - j) * r[EVERY], number(0.0)), h) : number(0.0);
    for (int i = 0; i < INPUTS; ++i) acting[i] = j ? select(begins[j] <= 0.0, command[i], acting[i]) : command[i];
  }
  begins[STRETCHES] = h;
#if LAGGED
  lag(torque, acting, r, acting);
#endif
  for (int i = 0; i < INPUTS; ++i) row[i] = acting[i];
  LOGGED(&t, x, OF_PLANT, row, rates, row + COMMAND);
}

static void look(const V* x, V t, const V* p, const V* w, V* rates, V* row) {
  V sent[(LATEST + 1) * SENT], begins[STRETCHES + 1];
  begin_period(x, t, OF_REALISM[EVERY], p, w, rates, row, sent, begins);
}

/* x after the period, which may end early at h, and the row at its start; `next` may be x. */
static void step(const V* x, V t, V h, const V* p, const V* w, V* next, V* row) {
  V sent[(LATEST + 1) * SENT], begins[STRETCHES + 1], y[STATE], after[STATE], at_start[STATE], k1[STATE];
  V first[COMMAND], halfway[COMMAND], last[COMMAND], torque[INPUTS];
  begin_period(x, t, h, p, w, at_start, row, sent, begins);
  for (int i = 0; i < STATE; ++i) y[i] = x[i];
  for (int i = 0; i < INPUTS; ++i) torque[i] = LAGGED ? x[STATE + i] : number(0.0);
  M fresh = number(0.0) == number(0.0);
  for (int k = 0; k < PARTS; ++k) {
    V left = h * (double)k / (double)PARTS, right = k + 1 < PARTS ? h * (double)(k + 1) / (double)PARTS : h;
    for (int j = 0; j < STRETCHES; ++j) {
      V begin = v_fmax(begins[j], left), end = v_fmin(begins[j + 1], right);
      M lasts = end > begin;
      if (!any(lasts)) continue;
      const V* u = sent + (LATEST - j) * SENT;
      V length = keep(lasts, end - begin), moment = t + begin;
#if LAGGED
      V now[INPUTS], half[INPUTS], then[INPUTS];
      lag(torque, u, OF_REALISM, now);
      hold(row, now, first);
      follow(torque, u, length, OF_REALISM, half, then);
      hold(row, half, halfway);
      hold(row, then, last);
      for (int i = 0; i < INPUTS; ++i) torque[i] = select(lasts, then[i], torque[i]);
      const V *at_half = halfway, *at_end = last;
#else
      hold(row, u, first);
      const V *at_half = first, *at_end = first;
#endif
      if (any(lasts & invert(fresh))) RATES(&moment, y, OF_PLANT, first, k1);
      for (int i = 0; i < STATE; ++i) k1[i] = select(fresh, at_start[i], k1[i]);
      advance(y, moment, length, OF_PLANT, at_half, at_end, k1, after);
      for (int i = 0; i < STATE; ++i) y[i] = select(lasts, after[i], y[i]);
      fresh = fresh & invert(lasts);
    }
  }
  for (int i = 0; i < STATE; ++i) next[i] = y[i];
  for (int i = 0; i < LAGGED * INPUTS; ++i) next[STATE + i] = torque[i];
  for (int i = 0; i < LATEST * SENT; ++i) next[STATE + LAGGED * INPUTS + i] = sent[i];
}
