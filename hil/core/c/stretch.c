/* Ordinary ticks of the task, one after the other, until Python has something to do. */

enum { BETWEEN_TICKS, IN_READ, AFTER_READ }; /* where the ticks end */

static unsigned long long load(const unsigned long long *place)
{
  unsigned long long value;
  __atomic_load(place, &value, 2); /* acquire */
  return value;
}

static void store(unsigned long long *place, unsigned long long value) { __atomic_store(place, &value, 3); } /* release */

/* The next slot of a ring; 0, with the loss counted, if there is none. */
static unsigned char *slot_of(tick_ring *ring)
{
  unsigned long long head = ring->counts[RING_HEAD];
  if (head - load(&ring->counts[RING_TAIL]) < ring->capacity)
    return ring->slots + head % ring->capacity * ring->size;
  ++ring->counts[RING_LOST];
  return 0;
}

static void publish(tick_ring *ring) { store(&ring->counts[RING_HEAD], ring->counts[RING_HEAD] + 1); }

static void record_frames(const tick_sockets *s, tick_ring *ring)
{
  for (int i = 0; i < s->count; ++i) {
    unsigned char *slot = slot_of(ring);
    if (!slot) continue;
    memcpy(slot, &s->frames[i], sizeof *s->frames);
    publish(ring);
  }
}

static void record_row(const tick *k, tick_log *g, tick_stretch *x)
{
  unsigned char *slot = slot_of(&x->rows);
  double *row = slot ? (double *)(void *)slot : g->unused;
  log_tick(k, g, &x->last, row);
  memcpy(row + g->columns - x->lives, x->live, x->lives * sizeof *row);
  if (slot) publish(&x->rows);
}

static int equal_feeds(const tick_feed *a, const tick_feed *b)
{
  const tick_frame *f = &a->frame, *h = &b->frame;
  return f->bus == h->bus && f->id == h->id && f->flags == h->flags && f->length == h->length &&
         !memcmp(f->data, h->data, f->length);
}

/* Feeds watchdogs, each distinct frame once per bus, and counts the tick. */
static void feed_watchdogs(tick_sockets *s, tick_stretch *x)
{
  for (int i = 0; i < x->feeds; ++i) {
    tick_feed *feed = &x->feed[i];
    int due = feed->ticks % feed->every == 0;
    for (int j = 0; j < i && due; ++j)
      if ((x->feed[j].ticks - 1) % x->feed[j].every == 0 && equal_feeds(&x->feed[j], feed)) due = 0;
    if (due) sockets_send(s, &feed->frame, 1);
    ++feed->ticks;
  }
}

/* Sleeps until a tick is due; returns whether a signal has come. */
static int sleep_until_due(const tick_sockets *s, const tick_stretch *x)
{
  char bytes[16];
  long long moment = x->deadline + s->origin;
  struct timespec end;
  end.tv_sec = moment / 1000000000;
  end.tv_nsec = moment % 1000000000;
  if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, 0)) return 1;
  return x->wake >= 0 && read(x->wake, bytes, sizeof bytes) > 0;
}

/* Whether Python must look at the tick that was just done. */
static int noteworthy(const tick *k, const tick_sockets *s, const tick_stretch *x)
{
  const double *row = k->law.results[0];
  if (s->failed || *k->failed) return 1;
  if (k->source != STOP && x->ends >> (int)row[k->status_start] & 1) return 1;
  if (k->source != STOP && limits_bind(k->limits)) return 1; /* a stop may use all of a limit */
  for (int i = 0; i < x->innovations; ++i) if (row[x->innovation + i] > x->outlier) return 1;
  return 0;
}

/* Sends the torques that Python has decided, after its read in C. */
int stretch_act(tick *k, tick_sockets *s, tick_stretch *x)
{
  s->count = s->failed = 0;
  if (tick_act(k)) return GIVEN_BACK;
  send_commands(k, s);
  feed_watchdogs(s, x);
  record_frames(s, &x->frames);
  return 0;
}

/* Does ticks, at most so many; returns where they end. A tick that was begun is Python's from there on. */
int stretch_run(tick *k, tick_sockets *s, tick_log *g, tick_stretch *x, int most)
{
  double elapsed = seconds(x->period);
  tick_times *now = &x->last;
  x->ticks = x->unknown = 0;
  while (x->ticks < most && (!x->decides || k->source == STOP || seconds(x->task_time) < x->duration) && !sleep_until_due(s, x)) {
    now->deadline = *k->due = x->deadline;
    now->elapsed = x->period;
    now->task_time = seconds(x->task_time);
    now->began = sockets_now(s);
    if (sockets_read(k, s, now->began, now->began + x->wait)) return IN_READ;
    record_frames(s, &x->frames);
    x->unknown += s->unknown;
    now->read = sockets_now(s);
    s->count = 0;
    if (!x->decides || tick_asks(k) || tick_decide(k, now->read, elapsed, now->task_time)) return AFTER_READ;
    send_commands(k, s);
    now->decided = sockets_now(s);
    feed_watchdogs(s, x);
    now->written = sockets_now(s);
    record_frames(s, &x->frames);
    record_row(k, g, x);
    ++x->ticks;
    if (!k->source) x->task_time += x->period;
    x->deadline += x->period;
    if (noteworthy(k, s, x) || sockets_now(s) - x->deadline >= x->period) break;
  }
  return BETWEEN_TICKS;
}
