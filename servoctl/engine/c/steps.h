/* One step of the classical Runge-Kutta method. Macros to define before it is included:

   STATE: length of what is integrated; SIZE: length of x, with delayed commands; PARAMETERS; COMMAND: length of the
   command, WIDTH: of a row; RANDOM: random numbers of a step; REALISTIC: `step` and `look` are those of realism.h;
   PARTS: Runge-Kutta steps of a held command, 0: the law acts continuously; PROJECTED: each step ends on the passive
   constraints, by CLOSING (t, x, p) -> changes of q and v, POSE each;
   RATES (t, x, p) -> x', LOGGED (t, x, p) -> x', row; or for a held command CONTROL (t, x, p) -> command,
   RATES (t, x, p, command) -> x', LOGGED (t, x, p, command) -> x', log. */
#if PARTS
#define HELD(command) , command
#else
#define HELD(command)
#endif

#if PROJECTED
/* Projects x onto the passive constraints: two Newton steps in q, then one in v; `Loop.projected` in C. */
static void project(V t, const V* p, V* x) {
  V dq[POSE], dv[POSE];
  for (int round = 0; round < 2; ++round) {
    CLOSING(&t, x, p, dq, dv);
    for (int i = 0; i < POSE; ++i) x[i] += dq[i];
  }
  CLOSING(&t, x, p, dq, dv);
  for (int i = 0; i < POSE; ++i) x[POSE + i] += dv[i];
}
#else
#define project(t, p, x)
#endif

/* x after a step from t to t + h; k1 is x' at its start, and the commands are those at t + h/2 and t + h. */
static void advance(const V* x, V t, V h, const V* p, const V* halfway, const V* last, const V* k1, V* next) {
  V k2[STATE], k3[STATE], k4[STATE], y[STATE], middle = t + h / 2.0, end = t + h;
  for (int i = 0; i < STATE; ++i) y[i] = x[i] + h / 2.0 * k1[i];
  RATES(&middle, y, p HELD(halfway), k2);
  for (int i = 0; i < STATE; ++i) y[i] = x[i] + h / 2.0 * k2[i];
  RATES(&middle, y, p HELD(halfway), k3);
  for (int i = 0; i < STATE; ++i) y[i] = x[i] + h * k3[i];
  RATES(&end, y, p HELD(last), k4);
  for (int i = 0; i < STATE; ++i) next[i] = x[i] + h / 6.0 * (k1[i] + 2.0 * k2[i] + 2.0 * k3[i] + k4[i]);
}

#if !REALISTIC
/* The row at t, and x' there. */
static void look(const V* x, V t, const V* p, const V* w, V* rates, V* row) {
#if PARTS
  CONTROL(&t, x, p, row);
  LOGGED(&t, x, p, row, rates, row + COMMAND);
#else
  LOGGED(&t, x, p, rates, row);
#endif
}

/* x after h, which is one step or one held command, and the row at its start; `next` may be x. */
static void step(const V* x, V t, V h, const V* p, const V* w, V* next, V* row) {
  V k1[STATE];
  look(x, t, p, w, k1, row);
  const V* command = row;
#if PARTS
  V y[STATE], part = h / (double)PARTS;
  advance(x, t, part, p, command, command, k1, y);
  for (int i = 1; i < PARTS; ++i) {
    V moment = t + part * (double)i;
    RATES(&moment, y, p HELD(command), k1);
    advance(y, moment, part, p, command, command, k1, y);
  }
  for (int i = 0; i < STATE; ++i) next[i] = y[i];
#else
  advance(x, t, h, p, command, command, k1, next);
#endif
}
#endif
