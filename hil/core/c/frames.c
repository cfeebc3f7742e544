/* Frames of the drives: numbers in and out of payloads. */

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

/* A position over the ends of the range of its frames: hil.drives.base. */
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

/* Takes the numbers of a message; nothing has changed if one is not finite. */
static int take_numbers(tick *k, const tick_message *from, const unsigned char *data)
{
  int node = from->node;
  double wrapped = k->wrapped[node], added = k->added[node], values[MOST_READS];
  for (int r = 0; r < from->reads_count; ++r) {
    const tick_reads *reads = &from->reads[r];
    values[r] = chained(&reads->chain, number_of(&reads->field, data), &wrapped, &added);
    if (reads->quantity < FIRST_GAUGE && !is_finite(values[r])) return give_back(k, "a number that is not finite in a frame");
  }
  k->wrapped[node] = wrapped;
  k->added[node] = added;
  for (int r = 0; r < from->reads_count; ++r) {
    int quantity = from->reads[r].quantity;
    if (quantity >= FIRST_GAUGE) k->gauges[(quantity - FIRST_GAUGE) * k->channels + node] = values[r];
    else if (quantity == 0) k->position[node] = values[r];
    else if (quantity == 1) k->velocity[node] = values[r];
    else k->next_torque[node] = values[r];
  }
  return 0;
}

/* Whether a frame is a sample and nothing else: whatever the state of its drive is, C takes it. */
static int only_measures(const tick_message *m) { return m->sample && !m->alive && !m->expects_count; }

/* Takes a frame; returns the number of its message, GIVEN_BACK if its driver must take it, or UNKNOWN for an id of no node. */
int tick_take(tick *k, int bus, unsigned id, int flags, int length, const unsigned char *data, long long time)
{
  int known = 0;
  for (int i = 0; i < k->messages; ++i) {
    tick_message *each = &k->message[i];
    int node = each->node;
    if (each->id != id || each->bus != bus) continue;
    known = 1;
    if (each->flags != (flags & KIND) || each->length != length || !as_expected(each->selects, each->selects_count, data)) continue;
    if (!k->healthy && !only_measures(each)) return GIVEN_BACK;
    if (!as_expected(each->expects, each->expects_count, data)) return give_back(k, "the state of a drive");
    if (take_numbers(k, each, data)) return GIVEN_BACK;
    if (each->sample) {
      k->torque[node] = k->next_torque[node];
      k->sample_time[node] = time;
    }
    if (each->alive && node < k->m) k->alive[node] = time;
    each->order = ++k->taken;
    each->time = time;
    memcpy(each->data, data, length);
    return i;
  }
  if (known) return give_back(k, "a frame of another kind, length or drive");
  for (int i = 0; i < k->watched; ++i)
    if (k->watch[i].bus == bus && (id & k->watch[i].mask) == k->watch[i].value &&
        (!k->watch[i].extended || flags & EXTENDED))
      return give_back(k, "a frame that is rare");
  return UNKNOWN;
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
  raw += copysign(e->hair, motor);
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
