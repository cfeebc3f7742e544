/* One step of the classical Runge-Kutta method, and stretches of them. Defined before this is included:

   SIZE, PARAMETERS, COMMAND and WIDTH of a row; PARTS: Runge-Kutta steps of a hold, 0: the law acts continuously;
   RATES (t, x, p) -> x', LOGGED (t, x, p) -> x', row; or for a hold CONTROL (t, x, p) -> command,
   RATES (t, x, p, command) -> x', LOGGED (t, x, p, command) -> x', log. */
#if PARTS
#define HELD , command
#else
#define HELD
#endif

/* x after a step from t to t + h; k1 is x' at its start. */
static void advance(const V* x, V t, V h, const V* p, const V* command, const V* k1, V* next) {
  V k2[SIZE], k3[SIZE], k4[SIZE], y[SIZE], middle = t + h / 2.0, end = t + h;
  for (int i = 0; i < SIZE; ++i) y[i] = x[i] + h / 2.0 * k1[i];
  RATES(&middle, y, p HELD, k2);
  for (int i = 0; i < SIZE; ++i) y[i] = x[i] + h / 2.0 * k2[i];
  RATES(&middle, y, p HELD, k3);
  for (int i = 0; i < SIZE; ++i) y[i] = x[i] + h * k3[i];
  RATES(&end, y, p HELD, k4);
  for (int i = 0; i < SIZE; ++i) next[i] = x[i] + h / 6.0 * (k1[i] + 2.0 * k2[i] + 2.0 * k3[i] + k4[i]);
}

/* The row at t, and x' there. */
static void look(const V* x, V t, const V* p, V* rates, V* row) {
#if PARTS
  CONTROL(&t, x, p, row);
  LOGGED(&t, x, p, row, rates, row + COMMAND);
#else
  LOGGED(&t, x, p, rates, row);
#endif
}

/* x after h, which is one step or one hold, and the row at its start; `next` may be x. */
static void step(const V* x, V t, V h, const V* p, V* next, V* row) {
  V k1[SIZE];
  look(x, t, p, k1, row);
  const V* command = row;
#if PARTS
  V y[SIZE], part = h / (double)PARTS;
  advance(x, t, part, p, command, k1, y);
  for (int i = 1; i < PARTS; ++i) {
    V moment = t + part * (double)i;
    RATES(&moment, y, p HELD, k1);
    advance(y, moment, part, p, command, k1, y);
  }
  for (int i = 0; i < SIZE; ++i) next[i] = y[i];
#else
  advance(x, t, h, p, command, k1, next);
#endif
}

#if LANES == 1
void servoctl_runge_kutta_step(const double** arg, double** res) {
  step(arg[0], arg[1][0], arg[2][0], arg[3], res[0], res[1]);
}

/* Steps from times[k] to times[k + 1], k = 0 .. count - 1: states[k] -> states[k + 1] and rows[k].
   Returns the number of steps before the first whose row has a status to stop at, or that ends in a number that is
   not finite: that one is the caller's to look at. */
long long servoctl_steps(long long count, const double* times, const double* p, long long status,
    long long stop_count, const double* stops, double* states, double* rows) {
  for (long long k = 0; k < count; ++k) {
    double *x = states + k * SIZE, *next = x + SIZE, *row = rows + k * WIDTH;
    step(x, times[k], times[k + 1] - times[k], p, next, row);
    for (long long i = 0; i < stop_count; ++i) if (row[status] == stops[i]) return k;
    for (long long i = 0; i < SIZE; ++i) if (!sound(next[i])) return k;
  }
  return count;
}
#endif
