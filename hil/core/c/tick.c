/* The steps of a tick, and the whole one. */

/* Begins a tick: what is taken from now on can be undone. */
void tick_begin(tick *k, long long began)
{
  memcpy(k->kept_numbers, k->numbers, k->doubles * sizeof *k->numbers);
  memcpy(k->kept_times, k->times, k->integers * sizeof *k->times);
  k->trouble = 0;
  *k->began = began;
}

/* State as before the tick. */
void tick_undo(tick *k)
{
  memcpy(k->numbers, k->kept_numbers, k->doubles * sizeof *k->numbers);
  memcpy(k->times, k->kept_times, k->integers * sizeof *k->times);
}

/* A limit changes a torque: hil.safety.limits. */
static double clamp(const tick_drive *d, double wanted, double last, double step)
{
  double torque = is_finite(wanted) ? wanted : 0.0;
  torque = smaller(larger(torque, -d->torque_limit), d->torque_limit);
  return smaller(larger(torque, last - step), last + step);
}

/* What a rule judges, and, in the order of hil.safety.rules.Measured, why a tick is given back when one is broken. */
static const double *measured(const tick *k, int quantity)
{
  switch (quantity) {
  case OF_POSITION: return k->displacements;
  case OF_SPEED: return k->rates;
  case OF_AGE: return k->ages;
  case OF_SILENCE: return k->silences;
  case OF_TORQUE: return k->torque;
  default: return k->gauges + (quantity - OF_TEMPERATURE) * k->channels;
  }
}

static const char *const BROKEN[] = {"a joint beyond its limits", "a joint beyond its limits", "an old sample",
                                     "a missing heartbeat", "a torque beyond its limits",
                                     "a hot drive", "a hot motor", "an unusual bus voltage", "a loaded motor",
                                     "the warning of a drive"};

/* Encodes the torques of the drives, whoever has decided them; nothing has changed if one cannot be sent. */
int tick_act(tick *k)
{
  for (int i = 0; i < k->m; ++i) {
    double torque = k->torques[i], most = k->drive[i].torque_limit;
    if (!(-most <= torque && torque <= most)) return give_back(k, "a torque above its limit");
    k->raw[i] = tick_encode(&k->encoding[i], torque);
    if (!is_finite(k->raw[i])) return give_back(k, "a torque that no frame carries");
  }
  memcpy(k->carried, k->raw, k->m * sizeof *k->raw);
  return 0;
}

/* A torque in steps of the wire, and what is left of it: hil.safety.limits.WireSteps. */
static double in_steps(tick *k, int i, double torque)
{
  double most = k->wire_limits[i], wanted = smaller(larger(torque + k->rest[i], -most), most);
  double carried = tick_encode(&k->encoding[i], wanted);
  k->unsent[i] = wanted - carried;
  return carried;
}

/* The law and the limits: hil.safety.stages in the task. The state changes only where nothing can fail any more. */
int tick_decide(tick *k, long long now, double elapsed, double task_time)
{
  int n = k->n, m = k->m;
  double since = seconds(now - *k->limits_time), waited = seconds(now - k->sensing->read), step = smaller(since, k->period);
  double *row = k->law.results[0], *x = k->law.arguments[1];
  for (int i = 0; i < k->rules; ++i) {
    const tick_rule *each = &k->rule[i];
    double value = measured(k, each->measured)[each->node] + (each->measured == OF_AGE || each->measured == OF_SILENCE ? waited : 0.0);
    if (value < each->lower || value > each->upper) return give_back(k, BROKEN[each->measured]);
  }
  k->law.arguments[0][0] = task_time;
  memcpy(x, k->law_q, n * sizeof *x);
  memcpy(x + n, k->law_v, n * sizeof *x);
  memcpy(x + 2 * n, k->controller_memory, k->memory * sizeof *x);
  if (k->estimates) x[2 * n + k->elapsed_at] = elapsed;
  k->law.function((const double **)k->law.arguments, k->law.results);
  if (!(row[k->status_start] >= 0.0 && row[k->status_start] < 64.0)) return give_back(k, "the law's status");
  if ((k->source == LAW || k->source == BLEND) && k->stops >> (int)row[k->status_start] & 1)
    return give_back(k, "the law's status");
  memcpy(k->wanted, row, m * sizeof *row);
  if (k->source && blend(k, elapsed)) return GIVEN_BACK;
  if (!all_finite(k->wanted, m)) return give_back(k, "a torque that is not finite");
  memcpy(k->limited, k->wanted, m * sizeof *x);
  if (k->source == STOP) together(k, step);
  for (int i = 0; i < m; ++i) {
    const tick_drive *d = &k->drive[i];
    double last = k->previous[i], most = d->torque_rate_limit * step, torque = k->limited[i];
    if (!(last - most <= torque && torque <= last + most && -d->torque_limit <= torque && torque <= d->torque_limit))
      torque = clamp(d, torque, last, most);
    k->limited[i] = torque;
    k->torques[i] = k->source && k->wire_steps ? in_steps(k, i, torque) : torque;
  }
  if (tick_act(k)) return GIVEN_BACK;
  memcpy(k->previous, k->limited, m * sizeof *x);
  for (int i = 0; i < m; ++i) k->clamped[i] = k->limited[i] != k->wanted[i];
  *k->limits_time = now;
  if (k->source == STOP) keep_stop(k);
  else if (k->source) {
    if (k->source == GUIDE) memcpy(k->anchor, k->learned, m * sizeof *x);
    else if (k->learns) memcpy(k->integral, k->learned, m * sizeof *x);
  }
  if (k->source && k->wire_steps) memcpy(k->rest, k->unsent, m * sizeof *x);
  if (k->tests) keep_test(k);
  memcpy(k->decided_q, k->law_q, n * sizeof *x);
  memcpy(k->decided_rates, k->rates, m * sizeof *x);
  if (k->own_memory && !k->source) {
    double time = k->memory_period == k->memory_period ? k->memory_period : elapsed;
    for (int i = 0; i < k->own_memory; ++i) k->controller_memory[i] += time * row[k->rate_start + i];
  }
  if (k->own_memory < k->memory) {
    int own = k->own_memory;
    double *rates = row + k->rate_start;
    if (k->moves && all_finite(rates + own, k->memory - own))
      for (int i = own; i < k->memory; ++i) k->controller_memory[i] += k->memory_period * rates[i];
    else memcpy(k->controller_memory + own, k->memory_start + own, (k->memory - own) * sizeof *x);
    memcpy(k->controller_memory + k->sent_at, k->torques, m * sizeof *x); /* as asked, not as rounded */
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
    if (tick_take(k, each->bus, each->id, each->flags, each->length, each->data, each->time) == GIVEN_BACK) {
      tick_undo(k);
      return GIVEN_BACK;
    }
  }
  return tick_sense(k, sensed) || tick_decide(k, decided, elapsed, task_time) ? GIVEN_BACK : 0;
}
