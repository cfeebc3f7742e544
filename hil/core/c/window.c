/* The windows over which hil.sensing.tracking compares the machine with its model. */

static void begin_window(tick *k)
{
  *k->window_elapsed = 0.0;
  *k->half_elapsed = -1.0;
  for (int j = 0; j < k->n; ++j) k->moved[j] = 0.0;
  for (int i = 0; i < k->m; ++i) {
    k->sent[i] = k->made[i] = 0.0;
    k->least[i] = INFINITY;
    k->most[i] = -INFINITY;
    k->where[i] = NAN;
  }
}

static void begin_quick(tick *k)
{
  *k->quick_elapsed = 0.0;
  for (int j = 0; j < k->n; ++j) k->quick_moved[j] = 0.0;
  for (int i = 0; i < k->m; ++i) k->quick_sent[i] = 0.0;
}

/* d of a window, in the results of the function. */
static const double *disturbance(tick *k, double t, const double *q, const double *moved, double elapsed)
{
  double **in = k->disturbance.arguments;
  in[0][0] = t;
  memcpy(in[1], q, k->n * sizeof *q); /* in[2], the velocity, stays 0 */
  for (int j = 0; j < k->n; ++j) in[4][j] = moved[j] / elapsed;
  k->disturbance.function((const double **)in, k->disturbance.results);
  return k->disturbance.results[0];
}

/* Smallest torque of a motor that a short window judges. */
static double quick_torque(const tick *k, int i)
{
  return larger(k->quick_least[i], k->floors[i] * k->window / k->quick);
}

/* Whether a disturbance has changed with the torque since the window before. */
static int follows(const tick *k, int i, double u, double size, double p)
{
  double du = u - k->before_u[i], dd = (k->disturbance.results[0][i] - k->before_d[i]) / p;
  return fabs(du) > k->change * size && fabs(dd + du) <= k->none_left * fabs(du);
}

/* States of the motors after a window, and whether one has lost its torque: hil.sensing.arrival. */
static int arrivals(tick *k, const double *sent, double elapsed, int is_long)
{
  const double *d = k->disturbance.results[0], *shares = k->disturbance.results[1];
  double square = 0.0;
  for (int i = 0; i < k->m; ++i) square += d[i] * d[i];
  for (int i = 0; i < k->m; ++i) {
    double u = sent[i] / elapsed, size = fabs(u), p = shares[i], speed = k->rates[i];
    double missing = fabs(d[i]) / p, left = fabs(d[i] / p + u);
    long long *state = &k->arrivals[(is_long ? k->m : 0) + i];
    int none = is_long && fabs(k->made[i]) <= k->none_left * fabs(sent[i]) && fabs(sent[i]) > k->resolved[i] * elapsed;
    int unproved = *state == UNPROVED || *state == AGAINST;
    double visible = larger(k->least_torque[i], k->floors[i] * k->window / elapsed);
    double least = is_long || unproved ? visible : quick_torque(k, i);
    if (p <= k->shown || (is_long && size > quick_torque(k, i)) || larger(size, missing) <= least) continue;
    int alone = p > k->single || d[i] * d[i] / p > k->alone * square, moves = fabs(speed) > k->slow[i];
    if (unproved) {
      int against = moves && alone && d[i] * u < 0.0 && d[i] * speed > 0.0 && missing >= (1.0 - k->none_left) * size;
      if (against && *state == AGAINST) return give_back(k, "a motion against a torque that is not proved");
      *state = moves && missing <= k->half * size ? ARRIVES : against ? AGAINST : UNPROVED;
    } else if (missing <= k->half * size) *state = ARRIVES;
    else if (left > k->none_left * size || !alone)
      *state = *state == ARRIVES ? BETWEEN : OTHER;
    else if (*state == OTHER) continue;
    else if (none || (moves && (d[i] * speed > 0.0 || missing > k->friction[i]))) {
      if (*state == NOT_FRICTION && (none || !is_long || follows(k, i, u, size, p))) return give_back(k, "a torque that does not arrive");
      *state = NOT_FRICTION;
    } else *state = *state == NOT_FRICTION || *state > k->most_windows[is_long] ? OTHER : *state < LOST ? LOST : *state + 1;
  }
  return 0;
}

/* Whether the disturbance came at once, and stayed: it differs from that of older windows, as it did in the last. */
static int came(const tick *k, const double *d, const double *allowed)
{
  int m = k->m, newest = (int)*k->windows - 1;
  for (int w = 0; w < newest; ++w)
    for (int i = 0; i < m; ++i) {
      double reference = k->last[w * m + i], last = k->last[newest * m + i];
      if (fabs(last - reference) > k->last_allowed[newest * m + i] && fabs(d[i] - reference) > allowed[i]) return 1;
    }
  return 0;
}

static void keep_window(tick *k, const double *d, const double *allowed)
{
  int m = k->m;
  size_t size = m * sizeof *d;
  if (*k->windows == WINDOWS) {
    memmove(k->last, k->last + m, (WINDOWS - 1) * size);
    memmove(k->last_allowed, k->last_allowed + m, (WINDOWS - 1) * size);
    --*k->windows;
  }
  memcpy(k->last + *k->windows * m, d, size);
  memcpy(k->last_allowed + *k->windows * m, allowed, size);
  ++*k->windows;
}

/* Ends a window of hil.sensing.tracking; one whose disturbance is too large is Python's. */
static int end_window(tick *k, double t, const double *q)
{
  int m = k->m;
  double used = -INFINITY, swing = -INFINITY, *allowed = k->allowed;
  const double *d;
  for (int i = 0; i < m; ++i) {
    used = larger(used, larger(k->most[i], -k->least[i]) / k->torque_limits[i]);
    swing = larger(swing, (k->most[i] - k->least[i]) / k->torque_limits[i]);
  }
  for (int i = 0; i < m; ++i) { /* NaN: a drive that reports no torque */
    double mean = k->sent[i] / *k->window_elapsed, missing = fabs(mean - k->made[i] / *k->window_elapsed);
    if (missing > k->lack * fabs(mean) + k->lag * (k->most[i] - k->least[i]) + k->felt[i])
      return give_back(k, "a torque that is not made");
  }
  *k->lacking = 0;
  d = disturbance(k, t, q, k->moved, *k->window_elapsed);
  if (!all_finite(d, m)) return give_back(k, "a disturbance that is not finite");
  if (arrivals(k, k->sent, *k->window_elapsed, 1)) return GIVEN_BACK;
  for (int i = 0; i < m; ++i) {
    k->before_u[i] = k->sent[i] / *k->window_elapsed;
    k->before_d[i] = d[i];
  }
  for (int i = 0; i < m; ++i)
    if (fabs(d[i]) > (k->share + k->level_model * used + k->lag * swing) * k->torque_limits[i])
      return give_back(k, "a disturbance");
  *k->beyond = 0;
  if (k->compares_windows) {
    for (int i = 0; i < m; ++i) allowed[i] = (k->share + k->rate_model * used + k->lag * swing) * k->torque_limits[i];
    if (came(k, d, allowed)) return give_back(k, "a disturbance that came at once");
    keep_window(k, d, allowed);
  }
  begin_window(k);
  return 0;
}

/* Adds a tick to the window of hil.sensing.tracking. */
static int track(tick *k, double t, double elapsed, const double *q, const double *v, const double *v_before)
{
  if (elapsed > k->longest) return give_back(k, "a gap");
  *k->window_elapsed += elapsed;
  *k->quick_elapsed += elapsed;
  for (int j = 0; j < k->n; ++j) {
    k->moved[j] += v[j] - v_before[j];
    k->quick_moved[j] += v[j] - v_before[j];
  }
  for (int i = 0; i < k->m; ++i) {
    double u = k->carried[i];
    k->sent[i] += elapsed * u;
    k->quick_sent[i] += elapsed * u;
    k->made[i] += elapsed * k->torque[i];
    k->least[i] = smaller(k->least[i], u);
    k->most[i] = larger(k->most[i], u);
  }
  if (*k->half_elapsed < 0.0 && *k->window_elapsed >= k->window / 2.0) {
    *k->half_elapsed = *k->window_elapsed;
    memcpy(k->half_moved, k->moved, k->n * sizeof *v);
    memcpy(k->half_sent, k->sent, k->m * sizeof *v);
    memcpy(k->where, k->displacements, k->m * sizeof *v);
  }
  if (*k->quick_elapsed >= k->quick) {
    disturbance(k, t, q, k->quick_moved, *k->quick_elapsed);
    if (arrivals(k, k->quick_sent, *k->quick_elapsed, 0)) return GIVEN_BACK;
    begin_quick(k);
  }
  return *k->window_elapsed < k->window ? 0 : end_window(k, t, q);
}
