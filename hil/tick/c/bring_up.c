/* What is said to the nodes outside the cyclic tick: the frames of their bring-up, what keeps them alive, and whether a
   drive is off. */

static const long long ANSWER = 3000000000LL; /* [ns] */

static tick *const K = &machine;
static tick_sockets *const S = &wires;
static volatile sig_atomic_t signalled;
static int enabled, begun; /* drives whose bring-up is complete, and nodes whose bring-up has begun */
static int enabling = -1, stopping; /* the drive that is being enabled; whether all are being switched off */
static int expected_from[64], expected_to[64];
static int confirmed[64], proofs[64]; /* whether a drive is off, and how many frames in a row have proved it */
static unsigned char amiss[sizeof message_table / sizeof message_table[0]]; /* the last frame was not as expected */
static unsigned char answered[sizeof steps / sizeof steps[0]];
static long long alive_ticks, served;
static tick_frame latest; /* the last frame with an id that is awaited */
static char answer_line[128]; /* text of the answer that is awaited */
static double numbers[sizeof answers / sizeof answers[0]];
static unsigned char heard[sizeof answers / sizeof answers[0]]; /* 1: a number has come */
static int refused; /* one is out of its range */

static void say(const char *name, const char *what) { fprintf(stderr, "%s%s%s\n", name, *name ? ": " : "", what); }

/* Adds the text of a frame to the line; returns whether the line is complete. The length of the text follows the head. */
static int ends_line(const tick_frame *f, int head)
{
  int length = (int)strlen(answer_line), last = head + 1 + f->data[head];
  for (int i = head + 1; i < last && i < f->length; ++i) {
    if (f->data[i] == '\n') return 1;
    if (f->data[i] >= ' ' && length < (int)sizeof answer_line - 1) answer_line[length++] = (char)f->data[i];
  }
  return 0;
}

/* Whether an answer is complete and its number lies in its range. */
static int in_range(int i, const tick_frame *f, int head)
{
  const loop_answer *a = &answers[i];
  char *end = 0;
  int fits;
  if (a->text) {
    if (!ends_line(f, head)) return 0;
    numbers[i] = strtod(answer_line, &end);
  } else numbers[i] = number_of(&a->field, f->data);
  heard[i] = 1;
  fits = end != answer_line && (isnan(numbers[i]) ? a->unlimited : numbers[i] >= a->least && numbers[i] <= a->most);
  if (!fits) refused = 1;
  return fits;
}

static int matches(const loop_step *step, const tick_frame *f)
{
  const loop_answer *a = step->answer < 0 ? 0 : &answers[step->answer];
  int length = step->frame.length;
  if (f->bus != step->frame.bus || f->id != step->frame.id) return 0;
  if (a && a->text ? f->length <= length : f->length != length) return 0;
  if ((f->flags ^ step->frame.flags) & ~(SENT | BRS)) return 0;
  for (int i = 0; i < length; ++i)
    if ((f->data[i] ^ step->frame.data[i]) & step->mask[i]) return 0;
  return !a || in_range(step->answer, f, length);
}

/* Whether a frame proves that its drive is off, or that it may be on. */
static void judge(const tick_frame *f)
{
  unsigned char whole[4 + 64];
  int node = -1, answers = 0;
  for (int i = 0; i < 4; ++i) whole[i] = (unsigned char)(f->id >> 8 * (3 - i));
  memcpy(whole + 4, f->data, sizeof f->data);
  for (int i = 0; i < (int)(sizeof offs / sizeof offs[0]); ++i) {
    const loop_off *each = &offs[i];
    if ((f->id & each->mask) != each->id || f->bus != each->bus || f->length != each->length) continue;
    if (!(f->flags & EXTENDED) != (each->id <= 0x7FF)) continue;
    if (!as_expected(each->selects, each->selects_count, whole + 4)) continue;
    node = each->node;
    if (as_expected(each->bits, each->bits_count, whole + 4)) answers = each->answers;
  }
  if (node < 0) return;
  proofs[node] = answers ? proofs[node] + 1 : 0;
  confirmed[node] = answers && proofs[node] >= answers;
}

/* Looks at a frame outside the cyclic tick: samples, answers that are awaited, and whether a drive is off. */
static void look_at(const tick_frame *f, int node)
{
  if (f->flags & (REMOTE | ERROR_FRAME)) return;
  tick_take(K, f->bus, f->id, f->flags >> 1 & 15, f->length, f->data, f->time);
  if (node >= 0)
    for (int i = expected_from[node]; i < expected_to[node]; ++i) {
      if (steps[i].frame.id == f->id) latest = *f;
      if (!answered[i] && matches(&steps[i], f)) {
        answered[i] = 1;
        break;
      }
    }
  for (int i = 0; i < K->messages; ++i) {
    const tick_message *each = &K->message[i];
    if (each->id != f->id || each->bus != f->bus || each->length != f->length || !each->expects_count) continue;
    if (!as_expected(each->selects, each->selects_count, f->data)) continue;
    S->last[i] = *f;
    amiss[i] = !as_expected(each->expects, each->expects_count, f->data);
  }
  judge(f);
}

/* Sends SYNC, what keeps the drives alive, and the torques: those that hold the enabled ones, none to the others. */
static void serve(void)
{
  tick_frame sync;
  memset(&sync, 0, sizeof sync);
  sync.id = 0x80;
  S->count = 0;
  for (int i = 0; i < S->buses; ++i) {
    sync.bus = (unsigned char)i;
    if (S->bus[i].synced) sockets_send(S, &sync, 1);
  }
  for (int i = 0; i < (int)(sizeof alive / sizeof alive[0]); ++i)
    if (alive[i].every && alive_ticks % alive[i].every == 0) sockets_send(S, &alive[i].frame, 1);
  ++alive_ticks;
  for (int i = 0; i < K->m && !stopping; ++i)
    if (i < enabled || (i == enabling && nodes[i].rests)) sockets_send(S, &holding[i], 1);
    else if (nodes[i].rests) sockets_send(S, &resting[i], 1);
}

/* Receives until a moment, and serves once per period. */
static void listen_until(long long moment, int node)
{
  while (sockets_now(S) < moment) {
    long long now = sockets_now(S);
    if (now - served >= PERIOD) {
      served = now;
      serve();
    }
    S->count = 0;
    for (int i = 0; i < S->buses; ++i) {
      sockets_take(K, S, i);
      for (int j = 0; j < S->count; ++j) look_at(&S->frames[j], node);
      S->count = 0;
    }
    wait_for_frame(S, moment < served + PERIOD ? moment : served + PERIOD);
    if (signalled) return;
  }
}

static void say_frame(const tick_frame *f)
{
  if (f->id) fprintf(stderr, " %03X#", f->id);
  else fprintf(stderr, " nothing");
  for (int i = 0; i < f->length; ++i) fprintf(stderr, "%02X", f->data[i]);
}

static void end_with_frame(const tick_frame *f)
{
  say_frame(f);
  fprintf(stderr, "\n");
}

/* Sends frames up to the next answer; a full bus gets them a little later. */
static int send_steps(int node, int *next, long long end)
{
  int last = nodes[node].first_step + nodes[node].steps, to = *next;
  while (to < last && !steps[to].awaits) ++to;
  for (expected_from[node] = expected_to[node] = to; expected_to[node] < last && steps[expected_to[node]].awaits;)
    ++expected_to[node]; /* an answer may come at once */
  memset(answer_line, 0, sizeof answer_line);
  while (*next < to) {
    if (*next == nodes[node].first_enable) enabling = node;
    S->count = 0;
    if (!sockets_send(S, &steps[*next].frame, 1)) ++*next;
    else if (sockets_now(S) > end) return say(nodes[node].name, "the bus refuses a frame"), 0;
    else listen_until(sockets_now(S) + PERIOD / 4, node);
    if (signalled) return 0;
  }
  return 1;
}

/* Waits a moment for answers; text comes only when it is asked for. */
static void await_answers(int node)
{
  int from = expected_from[node], to = expected_to[node];
  for (int i = from; i < to; ++i)
    if (!answered[i] && steps[i].answer >= 0 && answers[steps[i].answer].text) {
      S->count = 0;
      sockets_send(S, &answers[steps[i].answer].poll, 1);
      listen_until(sockets_now(S) + PERIOD, node);
      return;
    }
  listen_until(sockets_now(S) + PERIOD / 4, node);
}

static void say_missing(const char *name, const loop_step *step)
{
  const loop_answer *a = step->answer < 0 ? 0 : &answers[step->answer];
  if (!a) {
    fprintf(stderr, "%s: does not answer as at the export: awaited within 3 s", name);
    say_frame(&step->frame);
    fprintf(stderr, ", came");
    end_with_frame(&latest);
    return;
  }
  fprintf(stderr, "%s: %s: expected %s, came ", name, a->name, a->expected);
  if (!heard[step->answer]) fprintf(stderr, "nothing\n");
  else if (a->text) fprintf(stderr, "'%s'\n", answer_line);
  else fprintf(stderr, "%g\n", numbers[step->answer]);
}

/* Frames to send, then the answers, in any order among themselves. */
static int bring_up(int node)
{
  const loop_node *n = &nodes[node];
  int last = n->first_step + n->steps;
  memset(&latest, 0, sizeof latest);
  for (int i = n->first_step; i < last;) {
    long long end = sockets_now(S) + ANSWER;
    int missing = 1;
    expected_from[node] = i;
    while (i < last && steps[i].awaits) ++i;
    expected_to[node] = i;
    while (missing && !refused && !signalled && sockets_now(S) < end) {
      missing = 0;
      for (int j = expected_from[node]; j < i; ++j) missing += !answered[j];
      if (missing) await_answers(node);
    }
    if (signalled) return 0;
    for (int j = expected_from[node]; missing && j < i; ++j)
      if (!answered[j] && (!refused || (steps[j].answer >= 0 && heard[steps[j].answer]))) say_missing(n->name, &steps[j]);
    if (missing) return 0;
    if (!send_steps(node, &i, end)) return 0;
  }
  return 1;
}
