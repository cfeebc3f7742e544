#if LANES == 1
#if !REALISTIC
void servoctl_runge_kutta_step(const double** arg, double** res) {
  step(arg[0], arg[1][0], arg[2][0], arg[3], 0, res[0], res[1]);
}
#endif

/* Steps from times[k] to times[k + 1], k = 0 .. count - 1: states[k] -> states[k + 1] and rows[k]; random numbers
   random[k], shape (count, RANDOM). Returns the number of steps before the first whose row has a status to stop at, or
   that ends in a number that is not finite: the caller looks at that one. */
long long servoctl_steps(long long count, const double* times, const double* p, long long status,
    long long stop_count, const double* stops, const double* random, double* states, double* rows) {
  for (long long k = 0; k < count; ++k) {
    double *x = states + k * SIZE, *next = x + SIZE, *row = rows + k * WIDTH;
    step(x, times[k], times[k + 1] - times[k], p, random + k * RANDOM, next, row);
#if REALISTIC
    project(times[k + 1], OF_PLANT, next);
#else
    project(times[k + 1], p, next);
#endif
    for (long long i = 0; i < stop_count; ++i) if (row[status] == stops[i]) return k;
    for (long long i = 0; i < SIZE; ++i) if (!sound(next[i])) return k;
  }
  return count;
}
#endif
