/* An ordinary tick of a run, from frames to frames. Every number is computed by the operations of the Python tick in
   their order, so both give the same bits. Whatever is not ordinary ends the tick in C: `trouble` says why, the state is
   as before, and Python does the tick. The functions never allocate, print or wait. */

enum { GIVEN_BACK = -1, UNKNOWN = -2, WINDOWS = 3 };

static const double SECOND = 1e9;

static int give_back(tick *k, const char *why) { k->trouble = why; return GIVEN_BACK; }

static double seconds(long long time) { return (double)time / SECOND; }

static int is_finite(double x) { return x - x == 0.0; }

/* As Python's max and min, also for NaN and signed zeros. */
static double larger(double a, double b) { return b > a ? b : a; }
static double smaller(double a, double b) { return b < a ? b : a; }

static unsigned long long bits_of(const tick_field *f, const unsigned char *data)
{
  unsigned long long value = 0;
  for (int i = 0; i < f->size; ++i)
    value |= (unsigned long long)data[f->first + i] << 8 * (f->big ? f->size - 1 - i : i);
  return value >> f->shift & f->mask;
}

static double number_of(const tick_field *f, const unsigned char *data)
{
  unsigned long long value = bits_of(f, data);
  if (f->kind == 2) {
    unsigned word = (unsigned)value;
    float single;
    memcpy(&single, &word, sizeof single);
    return single;
  }
  if (f->kind == 1 && value > f->mask >> 1) return (double)((long long)value - (long long)f->mask - 1);
  return (double)value;
}

/* A position over the ends of the range of its frames: hil.drives.unwrapping. */
static double unwrapped(double position, double span, double *last, double *added)
{
  if (fabs(position - *last) > span / 2) *added += position < *last ? span : -span;
  *last = position;
  return position + *added;
}

static double chained(const tick_chain *chain, double x, double *last, double *added)
{
  for (int i = 0; i < chain->count; ++i) {
    double constant = chain->operations[i].constant;
    switch (chain->operations[i].operation) {
    case 0: x = x * constant; break;
    case 1: x = x / constant; break;
    case 3: x = unwrapped(x, constant, last, added); break;
    default: x = x + constant;
    }
  }
  return x;
}

static int as_expected(const tick_expects *each, int count, const unsigned char *data)
{
  for (int i = 0; i < count; ++i)
    if ((bits_of(&each[i].field, data) & each[i].mask) != each[i].value) return 0;
  return 1;
}

/* Begins a tick: what is taken from now on can be undone. */
void tick_begin(tick *k, long long began)
{
  memcpy(k->kept_numbers, k->numbers, k->doubles * sizeof *k->numbers);
  memcpy(k->kept_times, k->times, k->integers * sizeof *k->times);
  k->trouble = 0;
  *k->began = began;
  if (began != *k->sync) {
    *k->sync_before = *k->sync;
    *k->sync = began;
  }
}

/* State as before the tick. */
void tick_undo(tick *k)
{
  memcpy(k->numbers, k->kept_numbers, k->doubles * sizeof *k->numbers);
  memcpy(k->times, k->kept_times, k->integers * sizeof *k->times);
}

/* Takes a frame; returns the number of its message, GIVEN_BACK, or UNKNOWN for an id of no node. */
int tick_take(tick *k, int bus, unsigned id, int flags, int length, const unsigned char *data, long long time)
{
  int known = 0;
  for (int i = 0; i < k->messages; ++i) {
    const tick_message *each = &k->message[i];
    int node = each->node;
    if (each->id != id || each->bus != bus) continue;
    known = 1;
    if (each->flags != flags || each->length != length || !as_expected(each->selects, each->selects_count, data)) continue;
    if (!as_expected(each->expects, each->expects_count, data)) return give_back(k, "the state of a drive");
    for (int r = 0; r < each->reads_count; ++r) {
      const tick_reads *reads = &each->reads[r];
      double value = chained(&reads->chain, number_of(&reads->field, data), &k->wrapped[node], &k->added[node]);
      if (!is_finite(value)) return give_back(k, "a number that is not finite in a frame");
      if (reads->quantity == 0) k->position[node] = value;
      else if (reads->quantity == 1) k->velocity[node] = value;
      else k->next_torque[node] = value;
    }
    if (each->sample) {
      k->torque[node] = k->next_torque[node];
      k->sample_time[node] = time;
    }
    if (each->alive && node < k->m) k->alive[node] = time;
    return i;
  }
  if (known) return give_back(k, "a frame of another kind, length or drive");
  for (int i = 0; i < k->watched; ++i)
    if (k->watch[i].bus == bus && (id & k->watch[i].mask) == k->watch[i].value &&
        (!k->watch[i].extended || flags & 1))
      return give_back(k, "a frame that is rare");
  return UNKNOWN;
}

/* Number of a bus on which a sample of this tick is missing; -1: none is. */
int tick_missing(const tick *k)
{
  for (int i = 0; i < k->channels; ++i) {
    const tick_channel *each = &k->channel[i];
    if (each->awaited && k->sample_time[i] < (each->synced ? *k->began : *k->written)) return each->bus;
  }
  return -1;
}

static long long sampled(const tick *k, long long received)
{
  if (0 <= *k->sync && *k->sync <= received) return *k->sync;
  return 0 <= *k->sync_before && *k->sync_before <= received ? *k->sync_before : received;
}

/* Accepts a new sample of a channel, as hil.sensing.plausibility.judge does it. */
int tick_accept(tick *k, int i, long long time)
{
  const tick_channel *c = &k->channel[i];
  double position = k->position[i], velocity = k->velocity[i], model = k->expected[i], rate = k->rates[i];
  double last = k->accepted_position[i], elapsed = seconds(time - k->accepted_time[i]);
  double ordinary = elapsed < c->interval ? elapsed : c->interval;
  double step = position - (last + rate * (elapsed - ordinary)), possible = k->steps * c->resolution;
  if (!is_finite(position) || !is_finite(velocity)) return give_back(k, "a sample that is not finite");
  if (is_finite(c->speed_limit)) possible = possible + k->margin * c->speed_limit * ordinary;
  else {
    double fastest = larger(fabs(rate), fabs(velocity));
    fastest = larger(fastest, fabs(model));
    possible = possible + k->margin * fastest * ordinary + c->leap;
  }
  if (!(fabs(step) <= possible)) return give_back(k, "a sample that is not plausible");
  if (position != last) {
    k->travel[i] = 0.0;
    k->still_since[i] = time;
  } else {
    double against = copysign(larger(0.0, fabs(model) - c->held * elapsed), model);
    double travel = k->travel[i] + against * elapsed, still = seconds(time - k->still_since[i]);
    if (fabs(travel) > k->stuck_travel * c->visible && still >= k->stuck_time)
      return give_back(k, "an encoder that stands still");
    k->travel[i] = travel;
    if (still >= k->stuck_window) {
      k->travel[i] = 0.0;
      k->still_since[i] = time;
    }
  }
  k->accepted_position[i] = position;
  k->accepted_velocity[i] = velocity;
  k->accepted_torque[i] = k->torque[i];
  k->accepted_time[i] = k->seen[i] = time;
  k->before[i] = rate;
  k->rates[i] = velocity;
  return 0;
}

static void predict(tick *k, double t, double h, const double *q, const double *v, double *q_ahead, double *v_ahead)
{
  double **in = k->predict.arguments, *ahead = k->predict.results[0];
  size_t size = k->n * sizeof *q;
  in[0][0] = t;
  in[0][1] = h;
  memcpy(in[1], q, size);
  memcpy(in[1] + k->n, v, size);
  memcpy(in[2], k->carried, k->m * sizeof *q);
  k->predict.function((const double **)in, k->predict.results);
  memcpy(q_ahead, ahead, size);
  memcpy(v_ahead, ahead + k->n, size);
}

static int all_finite(const double *values, int count)
{
  for (int i = 0; i < count; ++i) if (!is_finite(values[i])) return 0;
  return 1;
}

static void begin_window(tick *k)
{
  *k->window_elapsed = 0.0;
  *k->half_elapsed = -1.0;
  for (int j = 0; j < k->n; ++j) k->moved[j] = 0.0;
  for (int i = 0; i < k->m; ++i) {
    k->sent[i] = 0.0;
    k->least[i] = INFINITY;
    k->most[i] = -INFINITY;
    k->where[i] = NAN;
  }
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
  int n = k->n, m = k->m;
  double **in = k->disturbance.arguments, *d = k->disturbance.results[0], used = -INFINITY, swing = -INFINITY;
  double *allowed = k->allowed;
  if (!k->ends_windows) return give_back(k, "the end of a window");
  for (int i = 0; i < m; ++i) {
    used = larger(used, larger(k->most[i], -k->least[i]) / k->torque_limits[i]);
    swing = larger(swing, (k->most[i] - k->least[i]) / k->torque_limits[i]);
  }
  in[0][0] = t;
  memcpy(in[1], q, n * sizeof *q); /* in[2], the velocity, stays 0 */
  for (int j = 0; j < n; ++j) in[4][j] = k->moved[j] / *k->window_elapsed;
  k->disturbance.function((const double **)in, k->disturbance.results);
  if (!all_finite(d, m)) return give_back(k, "a disturbance that is not finite");
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
  for (int j = 0; j < k->n; ++j) k->moved[j] += v[j] - v_before[j];
  for (int i = 0; i < k->m; ++i) {
    double u = k->carried[i];
    k->sent[i] += elapsed * u;
    k->least[i] = smaller(k->least[i], u);
    k->most[i] = larger(k->most[i], u);
  }
  if (*k->half_elapsed < 0.0 && *k->window_elapsed >= k->window / 2.0) {
    *k->half_elapsed = *k->window_elapsed;
    memcpy(k->half_moved, k->moved, k->n * sizeof *v);
    memcpy(k->half_sent, k->sent, k->m * sizeof *v);
    memcpy(k->where, k->displacements, k->m * sizeof *v);
  }
  return *k->window_elapsed < k->window ? 0 : end_window(k, t, q);
}

/* State of the machine from the samples: hil.sensing.sensing, and the prediction for the law. */
int tick_sense(tick *k, long long now)
{
  int n = k->n, m = k->channels;
  double t = seconds(now), elapsed = seconds(now - *k->now);
  double *x = k->sense.arguments[0], *estimate = k->sense.results[0];
  double *q = k->law_q, *v = k->law_v; /* the model's step, the start of the solver */
  const double *residual = estimate + 2 * n, *bound = residual + m;
  if (!(elapsed > 0.0)) return give_back(k, "no time has passed");
  predict(k, t - elapsed, elapsed, k->q, k->v, q, v);
  if (!all_finite(q, n) || !all_finite(v, n)) return give_back(k, "a prediction that is not finite");
  for (int i = 0; i < m; ++i) {
    const tick_channel *c = &k->channel[i];
    double speed = 0.0;
    for (int j = c->first_factor; j < c->first_factor + c->factors; ++j)
      speed = speed + k->factor[j] * v[k->factor_index[j]];
    k->expected[i] = speed;
  }
  for (int i = 0; i < m; ++i) {
    long long time = k->channel[i].synced ? sampled(k, k->sample_time[i]) : k->sample_time[i];
    double age, rate;
    if (time != k->seen[i] && tick_accept(k, i, time)) return GIVEN_BACK;
    age = seconds(now - k->accepted_time[i]);
    rate = k->rates[i];
    k->ages[i] = age;
    k->displacements[i] = k->accepted_position[i] + rate * age;
    k->slack[i] = fabs(rate) * k->skew + fabs(rate - k->before[i]) * (age < 1.0 ? age : 1.0);
  }
  x[0] = t;
  x[1] = 0.0;
  memcpy(x + 2, q, n * sizeof *x);
  memcpy(x + 2 + n, v, n * sizeof *x);
  memcpy(x + 2 + 2 * n, k->displacements, m * sizeof *x);
  memcpy(x + 2 + 2 * n + m, k->rates, m * sizeof *x);
  memcpy(x + 2 + 2 * n + 2 * m, k->slack, m * sizeof *x);
  k->sense.function((const double **)k->sense.arguments, k->sense.results);
  if (!all_finite(estimate, 2 * n)) return give_back(k, "an estimate that is not finite");
  if (estimate[2 * n + 3 * m] != (double)n) return give_back(k, "a direction that is not measured");
  k->residual = 0.0;
  for (int i = 0; i < m; ++i) {
    double most = k->residual_tolerance == k->residual_tolerance ? k->residual_tolerance : bound[i] + k->channel[i].floor;
    if (!(fabs(residual[i]) <= most)) return give_back(k, "encoders that contradict each other");
    k->residual = i ? larger(k->residual, fabs(residual[i])) : fabs(residual[i]);
  }
  if (k->tracks && track(k, t, elapsed, estimate, estimate + n, v)) return GIVEN_BACK;
  memcpy(k->q, estimate, n * sizeof *q);
  memcpy(k->v, estimate + n, n * sizeof *q);
  *k->now = now;
  if (k->predicts) predict(k, t, k->period, k->q, k->v, q, v);
  else {
    memcpy(q, k->q, n * sizeof *q);
    memcpy(v, k->v, n * sizeof *q);
  }
  return 0;
}

/* A limit changes a torque: hil.safety.limits. */
static double clamp(const tick_drive *d, double wanted, double last, double position, double step)
{
  double torque = is_finite(wanted) ? wanted : 0.0;
  torque = smaller(larger(torque, -d->torque_limit), d->torque_limit);
  torque = smaller(larger(torque, last - step), last + step);
  if ((position > d->upper && torque > 0.0) || (position < d->lower && torque < 0.0)) torque = 0.0;
  return torque;
}

static float single_towards_zero(double x)
{
  float rounded = (float)x;
  if (fabs((double)rounded) > fabs(x)) {
    unsigned word;
    memcpy(&word, &rounded, sizeof word);
    --word;
    memcpy(&rounded, &word, sizeof word);
  }
  return rounded;
}

/* Writes a torque into a frame; returns it as the frame carries it, NaN if it does not fit. */
double tick_encode(tick_encoding *e, double torque)
{
  const tick_field *f = &e->field;
  double motor = chained(&e->chain, torque, 0, 0), raw = chained(&e->steps, motor, 0, 0);
  unsigned char *data = e->frame + 4;
  unsigned long long bits;
  if (e->rounding == 0) raw = trunc(raw) + 0.0; /* an integer has no negative zero */
  if (e->rounding == 2) {
    double middle = floor((e->lowest + e->highest) / 2.0);
    raw = motor > 0.0 ? larger(floor(raw), middle + 1.0) : smaller(ceil(raw), middle);
  }
  if (!(e->lowest <= raw && raw <= e->highest)) return NAN;
  if (e->rounding == 1) {
    float single = single_towards_zero(raw);
    unsigned word;
    memcpy(&word, &single, sizeof word);
    bits = word;
    raw = single;
  } else bits = (unsigned long long)(long long)raw & f->mask;
  for (int i = 0; i < f->size; ++i) {
    int at = f->first + (f->big ? f->size - 1 - i : i);
    unsigned char mask = (unsigned char)(f->mask << f->shift >> 8 * i);
    data[at] = (unsigned char)((data[at] & ~mask) | ((unsigned char)(bits << f->shift >> 8 * i) & mask));
  }
  return e->back.count < 0 ? torque : chained(&e->back, raw, 0, 0);
}

/* The law and the limits: hil.safety.stages in the task. The state changes only where nothing can fail any more. */
int tick_decide(tick *k, long long now, double elapsed, double task_time)
{
  int n = k->n, m = k->m;
  double since = seconds(now - *k->limits_time), step = smaller(since, k->period);
  double *row = k->law.results[0], *x = k->law.arguments[1];
  for (int i = 0; i < k->channels; ++i)
    if (now - k->sample_time[i] > k->missed) return give_back(k, "an old sample");
  for (int i = 0; i < m; ++i) {
    const tick_drive *d = &k->drive[i];
    double position = k->displacements[i];
    if (d->silence >= 0 && k->alive[i] && now - k->alive[i] > d->silence) return give_back(k, "a missing heartbeat");
    if (!(d->lower <= position && position <= d->upper && fabs(k->rates[i]) <= d->speed_limit))
      return give_back(k, "a joint beyond its limits");
  }
  k->law.arguments[0][0] = task_time;
  memcpy(x, k->law_q, n * sizeof *x);
  memcpy(x + n, k->law_v, n * sizeof *x);
  memcpy(x + 2 * n, k->controller_memory, k->memory * sizeof *x);
  if (k->estimates) x[2 * n + k->memory - 1] = elapsed;
  k->law.function((const double **)k->law.arguments, k->law.results);
  if (!(row[k->status_start] >= 0.0 && row[k->status_start] < 64.0)) return give_back(k, "the law's status");
  if (k->stops >> (int)row[k->status_start] & 1) return give_back(k, "the law's status");
  if (!all_finite(row, m)) return give_back(k, "a torque that is not finite");
  for (int i = 0; i < m; ++i) {
    const tick_drive *d = &k->drive[i];
    double wanted = row[i], last = k->previous[i], most = d->torque_rate_limit * step, torque = wanted;
    if (!(last - most <= torque && torque <= last + most && -d->torque_limit <= torque && torque <= d->torque_limit))
      torque = clamp(d, wanted, last, k->displacements[i], most);
    if (!(-d->torque_limit <= torque && torque <= d->torque_limit)) return give_back(k, "a torque above its limit");
    k->clamped[i] = torque != wanted;
    k->torques[i] = torque;
    k->raw[i] = tick_encode(&k->encoding[i], torque);
    if (!is_finite(k->raw[i])) return give_back(k, "a torque that no frame carries");
  }
  memcpy(k->previous, k->torques, m * sizeof *x);
  memcpy(k->carried, k->raw, m * sizeof *x);
  *k->limits_time = now;
  if (k->own_memory) {
    double time = k->memory_period == k->memory_period ? k->memory_period : elapsed;
    for (int i = 0; i < k->own_memory; ++i) k->controller_memory[i] += time * row[k->rate_start + i];
  }
  if (k->estimates) {
    int own = k->own_memory;
    double *rates = row + k->rate_start;
    if (all_finite(rates + own, k->memory - own))
      for (int i = own; i < k->memory; ++i) k->controller_memory[i] += k->memory_period * rates[i];
    else memcpy(k->controller_memory + own, k->memory_start + own, (k->memory - own) * sizeof *x);
    memcpy(k->controller_memory + k->memory - 1 - m, k->torques, m * sizeof *x); /* as asked, not as rounded */
  }
  return 0;
}

/* The whole tick: a pure function of the state and the frames. The frames to send are in `encoding`. */
int tick_frames(tick *k, const tick_frame *in, int count, long long began, long long sensed, long long decided,
                double elapsed, double task_time)
{
  tick_begin(k, began);
  for (int i = 0; i < count; ++i) {
    const tick_frame *each = &in[i];
    if (tick_take(k, each->bus, each->id, each->flags >> 1 & 15, each->length, each->data, each->time) == GIVEN_BACK) {
      tick_undo(k);
      return GIVEN_BACK;
    }
  }
  if (tick_sense(k, sensed) || tick_decide(k, decided, elapsed, task_time)) {
    tick_undo(k);
    return GIVEN_BACK;
  }
  return 0;
}
