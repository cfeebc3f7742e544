/* Whether the machine moves as its model predicts under the torques that were sent: hil.sensing.tracking. */

enum { IN_A_ROW = 2 }; /* consecutive windows that stop the machine; a short knock fills only one */

static const double LACK = 0.5; /* a drive that reports less than this share of its torque does not make it */

static void begin_window(tracking *w)
{
  w->window_elapsed = 0.0;
  w->halved = 0;
  for (int j = 0; j < w->n; ++j) w->moved[j] = 0.0;
  for (int i = 0; i < w->m; ++i) {
    w->sent[i] = w->made[i] = 0.0;
    w->least[i] = INFINITY;
    w->most[i] = -INFINITY;
    w->where[i] = NAN;
  }
}

static void begin_quick(tracking *w)
{
  w->quick_elapsed = 0.0;
  for (int j = 0; j < w->n; ++j) w->quick_moved[j] = 0.0;
  for (int i = 0; i < w->m; ++i) w->quick_sent[i] = 0.0;
}

/* Starts again; the next tick begins a window. */
void track_begin(tracking *w)
{
  w->stopped = w->beyond = w->lacking = w->windows = 0;
  for (int i = 0; i < w->m; ++i) {
    w->arrivals[i] = w->arrivals[w->m + i] = w->unproved[i] ? UNPROVED : ARRIVES;
    w->before_u[i] = w->before_d[i] = w->quick_last[i] = w->quick_before[i] = 0.0;
  }
  begin_window(w);
  begin_quick(w);
}

static int add_finding(tracking *w, int found, int motor, int stops, double a, double b)
{
  w->verdict = (sense_verdict){found, motor, stops, CAUSE_NONE, {a, b, 0.0}};
  return 1;
}

/* d of a motion in a time, in the results of the function. */
static const double *disturbance(tracking *w, double t, const double *q, const double *moved, double elapsed)
{
  double **in = w->disturbance.arguments;
  in[0][0] = t;
  copy(in[1], q, w->n); /* in[2], the velocity, stays 0 */
  for (int j = 0; j < w->n; ++j) in[4][j] = moved[j] / elapsed;
  return evaluate(&w->disturbance);
}

/* The largest d that errors of the samples alone can cause at this pose: up to 0.5 ms. */
static const double *find_floors(tracking *w, double t, const double *q)
{
  w->floor.arguments[0][0] = t;
  copy(w->floor.arguments[1], q, w->n);
  return evaluate(&w->floor);
}

/* Index of the largest value; that of the first NaN if there is one. */
static int largest_of(const double *values, int count)
{
  int best = 0;
  for (int i = 0; i < count; ++i) {
    if (values[i] != values[i]) return i;
    if (values[i] > values[best]) best = i;
  }
  return best;
}

/* What explains a disturbance: torque that does not arrive, a joint that is blocked, or a load.

       lost      d = (k - 1) u:      the torque that arrives is a share k of the torque sent, whatever that is
       blocked   d = -u or d' = -u': no torque, or none that is added, moves anything, and the joint stands still
       load      d' = 0:             it stays while the torque changes

   Of a torque too small to be seen in the motion d = -u too, so it tells nothing of a joint that stands.

   These differ in how d follows the torque, not in its size, so the two halves of a window are compared. A motor whose
   torque is lost is alone; a load is felt by several joints. With redundant motors d is their smallest torque, of which
   one motor shows its share p alone: d_j^2 / p_j = |d|^2 if motor j explains everything. */

static const double EXPLAINS = 0.8;    /* one drive explains a disturbance from this share of its square on */
static const double FOLLOWS = 0.03;    /* smallest torque or change of one that tells causes apart, relative to its limit */
static const double NOTHING = 0.1;     /* a joint that stands still is blocked if less of its torque moves it */

/* Writes motor, cause and its share into a verdict; `first` and `second`: d, then u, of the two halves. */
static void track_cause(tracking *w, const double *d, const double *first, const double *second, const int *still,
                        sense_verdict *found)
{
  int m = w->m, alone;
  const double *shares = w->disturbance.results[1], *u0 = first + m, *u1 = second + m, *limits = w->limits;
  double total = 0.0, *square = w->scratch, du, change, share, proportional;
  for (int i = 0; i < m; ++i) {
    du = u1[i] - u0[i];
    change = second[i] - first[i];
    int follows = fabs(du) > FOLLOWS * limits[i] && 0.5 < -change / du && -change / du < 1.5;
    int loaded = fabs(u0[i]) > FOLLOWS * limits[i] && fabs(u1[i]) > FOLLOWS * limits[i];
    int nothing = fabs(first[i] + u0[i]) < NOTHING * fabs(u0[i]) && fabs(second[i] + u1[i]) < NOTHING * fabs(u1[i]);
    if (still[i] && (follows || (nothing && loaded))) {
      found->channel = i;
      found->cause = CAUSE_BLOCKED;
      return;
    }
    square[i] = shares[i] > 1e-9 ? d[i] * d[i] / larger(shares[i], 1e-9) : 0.0;
    total += d[i] * d[i];
  }
  alone = largest_of(square, m);
  found->channel = alone;
  if (square[alone] > EXPLAINS * total && fabs(u1[alone]) > FOLLOWS * limits[alone]) {
    du = u1[alone] - u0[alone];
    change = second[alone] - first[alone];
    share = 1.0 + second[alone] / shares[alone] / u1[alone];
    proportional = first[alone] * u1[alone] / (u0[alone] != 0.0 ? u0[alone] : INFINITY);
    found->cause = CAUSE_ALONE;
    if (fabs(second[alone] - proportional) < 0.5 * fabs(change) && fabs(du) > FOLLOWS * limits[alone]) {
      found->cause = CAUSE_PART;
      found->numbers[2] = 100.0 * larger(share, 0.0);
    }
    return;
  }
  for (int i = 0; i < m; ++i) square[i] = fabs(d[i]) / limits[i];
  found->channel = largest_of(square, m);
  found->cause = CAUSE_LOAD;
}

/* The cause by the two halves of this window; returns whether it is no load. */
static int find_cause(tracking *w, double t, const double *q, const double *d)
{
  int m = w->m;
  double later = w->window_elapsed - w->half_elapsed, *first = w->halves, *second = w->halves + 2 * m;
  for (int j = 0; j < w->n; ++j) w->later_moved[j] = w->moved[j] - w->half_moved[j];
  copy(first, disturbance(w, t, q, w->half_moved, w->half_elapsed), m);
  copy(second, disturbance(w, t, q, w->later_moved, later), m);
  for (int i = 0; i < m; ++i) {
    first[m + i] = w->half_sent[i] / w->half_elapsed;
    second[m + i] = (w->sent[i] - w->half_sent[i]) / later;
    w->stands[i] = w->where[i] / later < w->slow[i];
  }
  track_cause(w, d, first, second, w->stands, &w->verdict);
  return w->verdict.cause == CAUSE_BLOCKED || w->verdict.cause == CAUSE_PART;
}

/* Whether the torque of each motor arrives at the machine: it did before, and then none of it does.

       d / p = -u  in all windows since then, and in two in a row its drive reports no torque either,
                   or, while it moves,  d y' > 0  or  |d| / p > 2 friction

   d is the disturbance, u the mean torque sent, p the share of it that the motion shows, and y' the speed of the joint at
   the end of a window. The second line counts only where more is missing than torques that act late explain.

   Friction, a load or an error of the model may be as large as the torque of a joint that the model does not load: there
   d = -u always. So a motor is named only if its torque arrived before, at most 0.3 s ago, and friction does not explain
   it: the motion gains the energy of what is missing, twice as much is missing as friction and loads may take
   (hil.safety.tracking), or the drive itself reports that it makes none of it. This is judged over two ticks, which
   shows a joint that falls before it is fast. A torque that friction and loads may take is judged over the long windows,
   where lost samples count little, and d must follow u from one to the next: a small load that stays does not. Without a
   report, a small torque that drives the motion looks like friction when it is lost, and one below the errors of the
   samples shows nothing. This rule is ours.

   A motor that stage zero could not prove, because of friction, may have the wrong polarity: once its torque exceeds the
   friction, the axis runs away. Friction takes energy, and this motion gains what the torque should have taken. So the
   first two windows in which the motion goes against its torque name it, whatever came before, unless torques that act
   late explain it; a load that drives the axis looks the same. The first window in which it moves with most of its
   torque proves it. */

static const double NONE_LEFT = 0.25; /* none of a torque arrives if less than this share of it is left */
static const double HALF = 0.5;       /* it arrives if less than this share lacks */
static const double SHOWN = 0.1;      /* smallest share of a torque, among redundant motors, that is judged */
static const double CHANGE = 0.1;     /* change of a torque that a disturbance must have followed, as a share of it */
static const double SINGLE = 0.99;    /* a motor acts alone if the motion shows more than this share of its torque */
static const double ALONE = 0.8;      /* share of the squares of d that one of redundant motors must explain alone */

/* Smallest torque of a motor that a short window judges. */
static double quick_torque(const tracking *w, int i)
{
  return larger(w->quick_least[i], w->floors[i] * w->window / w->quick);
}

/* Whether a disturbance has changed with the torque since the window before: a small constant load has not. */
static int follows(const tracking *w, int i, double u, double size, double p)
{
  double du = u - w->before_u[i], dd = (w->disturbance.results[0][i] - w->before_d[i]) / p;
  return fabs(du) > CHANGE * size && fabs(dd + du) <= NONE_LEFT * fabs(du);
}

/* What torques that act late may seem to lack: a short window is shorter than the time by which they may. */
static double late_torque(const tracking *w, int is_long, int i, double u)
{
  if (is_long) return w->lag * (w->most[i] - w->least[i]);
  return larger(fabs(u - w->quick_last[i]), fabs(u - w->quick_before[i]));
}

/* State of a motor after a window, into `after`; returns whether it has lost its torque, or moves against it. */
static int arrival(tracking *w, int is_long, int i, double elapsed, const double *sent, double speed, double square)
{
  double d = w->disturbance.results[0][i], p = w->disturbance.results[1][i], u = sent[i] / elapsed, size = fabs(u);
  double missing = fabs(d) / p, left = fabs(d / p + u), late = late_torque(w, is_long, i, u);
  double visible = larger(w->least_torque[i], w->floors[i] * w->window / elapsed);
  long long state = w->arrivals[(is_long ? w->m : 0) + i], *after = &w->after[i];
  int unproved = state == UNPROVED || state == AGAINST, moves = fabs(speed) > w->slow[i];
  int none = is_long && fabs(w->made[i]) <= NONE_LEFT * fabs(sent[i]) && fabs(sent[i]) > w->resolved[i] * elapsed;
  int alone = p > SINGLE || d * d / p > ALONE * square;
  *after = state;
  if (p <= SHOWN || (is_long && size > quick_torque(w, i))) return 0;
  if (larger(size, missing) <= (is_long || unproved ? visible : quick_torque(w, i))) return 0;
  if (unproved) {
    double least = larger(visible, (1.0 - NONE_LEFT) * size) + late;
    int against = alone && d * u < 0.0 && d * speed > 0.0 && missing >= least;
    *after = !moves ? UNPROVED : missing <= HALF * size ? ARRIVES : against ? AGAINST : UNPROVED;
    return *after == AGAINST && state == AGAINST;
  }
  if (missing <= HALF * size) *after = ARRIVES;
  else if (left > NONE_LEFT * size || !alone) *after = state == ARRIVES ? BETWEEN : OTHER;
  else if (state == OTHER) return 0;
  else if (none || (moves && missing > late && (d * speed > 0.0 || missing > w->friction[i]))) {
    *after = NOT_FRICTION;
    return state == NOT_FRICTION && (none || !is_long || follows(w, i, u, size, p));
  } else *after = state == NOT_FRICTION || state > w->most_windows[is_long] ? OTHER : state < LOST ? LOST : state + 1;
  return 0;
}

/* Whether the joint of another motor stands though more than friction takes should move it, or though redundant motors move
   the others and stage zero has not seen it move: it is blocked, or its encoder is stuck. The others push it, so what the
   model says of their torques is wrong. */
static int another_stands(const tracking *w, int motor, double elapsed, const double *sent, const double *speeds)
{
  for (int i = 0; i < w->m; ++i) {
    double u = sent[i] / elapsed, p = w->disturbance.results[1][i], left = fabs(w->disturbance.results[0][i] / p + u);
    int nothing = p > SHOWN && left <= NONE_LEFT * fabs(u) && fabs(u) > w->friction[i];
    int unseen = w->disturbance.results[1][motor] <= SINGLE && w->unproved[i] && w->after[i] == UNPROVED;
    if (i != motor && (nothing || unseen) && fabs(speeds[i]) <= w->slow[i]) return 1;
  }
  return 0;
}

/* States of the motors after a window whose d was found, into `after`; returns the motor that is named, or -1. */
static int track_arrivals(tracking *w, int is_long, double elapsed, const double *sent, const double *speeds)
{
  const double *d = w->disturbance.results[0];
  double square = 0.0;
  int named = -1;
  for (int i = 0; i < w->m; ++i) square += d[i] * d[i];
  for (int i = 0; i < w->m; ++i)
    if (arrival(w, is_long, i, elapsed, sent, speeds[i], square)) named = i;
  return named >= 0 && another_stands(w, named, elapsed, sent, speeds) ? -1 : named;
}

/* Judges which torques arrive in a window; returns whether it has a finding. */
static int judge_arrivals(tracking *w, int is_long, double t, const double *q, const double *moved, double elapsed,
                          const double *sent, const double *speeds)
{
  int m = w->m, named, unknown = 0;
  const double *d = disturbance(w, t, q, moved, elapsed);
  for (int i = 0; i < m; ++i) unknown = unknown || w->floors[i] != w->floors[i];
  if (unknown) copy(w->floors, find_floors(w, t, q), m);
  named = track_arrivals(w, is_long, elapsed, sent, speeds);
  if (named >= 0) { /* the pose may be another one than that of the floors */
    copy(w->floors, find_floors(w, t, q), m);
    named = track_arrivals(w, is_long, elapsed, sent, speeds);
  }
  memcpy(w->arrivals + (is_long ? m : 0), w->after, m * sizeof *w->after);
  if (!is_long) copy(w->quick_before, w->quick_last, m);
  for (int i = 0; i < m; ++i) {
    double u = sent[i] / elapsed;
    if (!is_long) w->quick_last[i] = u;
    else {
      w->before_u[i] = u;
      w->before_d[i] = d[i];
    }
  }
  if (named < 0) return 0;
  return add_finding(w, w->after[named] == AGAINST ? FOUND_AGAINST : FOUND_LOST, named, 1, sent[named] / elapsed, 0.0);
}

/* Whether a drive reports far less than the torque that it was sent, in two windows in a row. */
static int judge_made(tracking *w)
{
  double worst = 0.0;
  int motor = -1, lacks = 0;
  for (int i = 0; i < w->m; ++i) { /* NaN: a drive that reports no torque */
    double sent = w->sent[i] / w->window_elapsed, missing = fabs(sent - w->made[i] / w->window_elapsed);
    double allowed = LACK * fabs(sent) + w->report_lag[i] * (w->most[i] - w->least[i]) + w->felt[i];
    lacks = lacks || missing > allowed;
    if (motor < 0 ? missing / allowed == missing / allowed : missing / allowed > worst) {
      motor = i;
      worst = missing / allowed;
    }
  }
  w->lacking = lacks ? w->lacking + 1 : 0;
  if (w->lacking < IN_A_ROW) return 0;
  return add_finding(w, FOUND_NOT_MADE, motor, 1, w->made[motor] / w->window_elapsed, w->sent[motor] / w->window_elapsed);
}

/* Whether the disturbance is too large in two windows in a row; the floors, which are dear, are found only then. */
static int judge_level(tracking *w, double t, const double *q, const double *d, double used, double swing)
{
  int m = w->m, above = 0, worst;
  double *allowed = w->allowed, *ratio = w->scratch;
  for (int i = 0; i < m; ++i) {
    allowed[i] = (w->share + w->level_model * used + w->lag * swing) * w->limits[i];
    above = above || fabs(d[i]) > allowed[i];
  }
  if (above) {
    const double *floors = find_floors(w, t, q);
    for (int i = 0; i < m; ++i) allowed[i] = allowed[i] + floors[i];
  }
  for (int i = 0; i < m; ++i) ratio[i] = fabs(d[i]) / allowed[i];
  worst = largest_of(ratio, m);
  w->beyond = fabs(d[worst]) > allowed[worst] ? w->beyond + 1 : 0;
  if (w->beyond < IN_A_ROW) return 0;
  add_finding(w, FOUND_DISTURBANCE, worst, 1, d[worst], allowed[worst]);
  find_cause(w, t, q, d);
  return 1;
}

static void keep_window(tracking *w, const double *d, const double *allowed)
{
  int m = w->m;
  if (w->windows == WINDOWS) {
    size_t size = (WINDOWS - 1) * m * sizeof *d;
    memmove(w->last, w->last + m, size);
    memmove(w->last_allowed, w->last_allowed + m, size);
    --w->windows;
  }
  copy(w->last + w->windows * m, d, m);
  copy(w->last_allowed + w->windows * m, allowed, m);
  ++w->windows;
}

/* Whether the disturbance has changed since older windows, and by as much in the window before: a knock fills one. */
static int changed(tracking *w, const double *d, const double *reference, const double *last, const double *then,
                   const double *floors)
{
  for (int i = 0; i < w->m; ++i)
    if (fabs(last[i] - reference[i]) > then[i] && fabs(d[i] - reference[i]) > w->allowed[i] + (floors ? floors[i] : 0.0))
      return 1;
  return 0;
}

/* Whether the disturbance has come at once and stayed; a load alone does not stop the machine. */
static int judge_change(tracking *w, double t, const double *q, const double *d, double used, double swing)
{
  int m = w->m, before = w->windows - 1;
  double *last = w->scratch, *then = w->scratch + m;
  for (int i = 0; i < m; ++i) w->allowed[i] = (w->share + w->rate_model * used + w->lag * swing) * w->limits[i];
  if (before >= 0) {
    copy(last, w->last + before * m, m);
    copy(then, w->last_allowed + before * m, m);
  }
  for (int back = IN_A_ROW; before > 0; ++back, --before) {
    const double *reference = w->last + (before - 1) * m;
    if (!changed(w, d, reference, last, then, 0) || !changed(w, d, reference, last, then, find_floors(w, t, q))) continue;
    for (int i = 0; i < m; ++i) w->came[i] = d[i] - reference[i];
    w->windows = 0;
    keep_window(w, d, w->allowed);
    add_finding(w, FOUND_CHANGE, 0, 1, 0.0, w->window * back);
    w->verdict.stops = find_cause(w, t, q, w->came);
    w->verdict.numbers[0] = w->came[w->verdict.channel];
    return 1;
  }
  keep_window(w, d, w->allowed);
  return 0;
}

/* Ends a window; returns whether it has a finding. `lost`: whether a short window has one. */
static int end_window(tracking *w, double t, const double *q, const double *positions, const double *speeds, int lost)
{
  int m = w->m, found;
  double used = -INFINITY, swing = -INFINITY, *d = w->d;
  lost = judge_arrivals(w, 1, t, q, w->moved, w->window_elapsed, w->sent, speeds) || lost;
  copy(d, w->disturbance.results[0], m);
  for (int i = 0; i < m; ++i) {
    used = larger(used, larger(w->most[i], -w->least[i]) / w->limits[i]);
    swing = larger(swing, (w->most[i] - w->least[i]) / w->limits[i]);
    w->where[i] = fabs(positions[i] - w->where[i]);
  }
  found = judge_made(w) || lost || judge_level(w, t, q, d, used, swing) ||
          (w->estimated && !w->stopped && judge_change(w, t, q, d, used, swing));
  w->stopped = w->stopped || (found && w->verdict.stops);
  begin_window(w);
  return found;
}

/* Adds a tick; returns whether `verdict` says that the machine did not follow its model in the last windows.

   `innovation`: v - v-; 0: there is no prediction. `u`: inputs since the tick before; 0: the motors do not move the
   machine. `positions`, `speeds`: of the joints; `made`: torques that the drives report; NaN: not known. */
int track_judge(tracking *w, double t, double elapsed, const double *q, const double *innovation, const double *u,
                const double *positions, const double *made, const double *speeds)
{
  int lost = 0;
  if (!innovation || !u || elapsed > w->longest) {
    track_begin(w);
    return 0;
  }
  w->window_elapsed += elapsed;
  w->quick_elapsed += elapsed;
  for (int j = 0; j < w->n; ++j) {
    w->moved[j] += innovation[j];
    w->quick_moved[j] += innovation[j];
  }
  for (int i = 0; i < w->m; ++i) {
    w->sent[i] += elapsed * u[i];
    w->quick_sent[i] += elapsed * u[i];
    w->made[i] += elapsed * made[i];
    w->least[i] = smaller(w->least[i], u[i]);
    w->most[i] = larger(w->most[i], u[i]);
  }
  if (!w->halved && w->window_elapsed >= w->window / 2.0) {
    w->halved = 1;
    w->half_elapsed = w->window_elapsed;
    copy(w->half_moved, w->moved, w->n);
    copy(w->half_sent, w->sent, w->m);
    copy(w->where, positions, w->m);
  }
  if (w->quick_elapsed >= w->quick) {
    lost = judge_arrivals(w, 0, t, q, w->quick_moved, w->quick_elapsed, w->quick_sent, speeds);
    begin_quick(w);
  }
  return w->window_elapsed < w->window ? lost : end_window(w, t, q, positions, speeds, lost);
}
