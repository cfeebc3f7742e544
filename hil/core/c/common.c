/* A tick of a run, from frames to frames. Sensing, torques and rows are here alone. What Python computes too (frames that
   its drivers read, the law's memory) is computed by its operations in their order, so both give the same bits. A frame or a
   torque that C does not know ends the tick in C: `trouble` says why, no state has changed, and Python goes on. The
   functions never allocate, print or wait. */

static const double SECOND = 1e9;

static int give_back(tick *k, const char *why) { k->trouble = why; return GIVEN_BACK; }

static double seconds(long long time) { return (double)time / SECOND; }

static int is_finite(double x) { return x - x == 0.0; }

static int all_finite(const double *values, int count)
{
  for (int i = 0; i < count; ++i) if (!is_finite(values[i])) return 0;
  return 1;
}

static void copy(double *to, const double *from, int count) { memcpy(to, from, count * sizeof *to); }

/* Evaluates a function on its buffers; returns its first result. */
static const double *evaluate(const tick_call *call)
{
  call->function((const double **)call->arguments, call->results);
  return call->results[0];
}

/* As Python's max and min, also for NaN and signed zeros. */
static double larger(double a, double b) { return b > a ? b : a; }
static double smaller(double a, double b) { return b < a ? b : a; }
