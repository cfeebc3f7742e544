/* Tables and state of the tick in C; constants are those of SHARED in hil.core.library. Python reads this file as it stands, so it has no preprocessor lines. */

typedef struct { /* an integer or a float of single precision in a payload; first -4 to -1: in the id */
  int first, size, shift, kind, big; /* kind 0: unsigned, 1: signed, 2: float */
  unsigned long long mask;
} tick_field;

typedef struct { /* operation 0: times, 1: over, 2: plus, 3: over the ends of a range of this length */
  int operation;
  double constant;
} tick_operation;

typedef struct {
  int count;
  tick_operation operations[8];
} tick_chain;

typedef struct {
  tick_field field;
  unsigned long long mask, value;
} tick_expects;

typedef struct { /* quantity 0: position, 1: velocity, 2: torque, then the gauges */
  tick_field field;
  int quantity;
  tick_chain chain;
} tick_reads;

typedef struct { /* a frame that a healthy node sends */
  unsigned id;
  int bus, node, flags, length, sample, alive;
  int selects_count, expects_count, reads_count;
  tick_expects selects[1], expects[5];
  tick_reads reads[5];
} tick_message;

typedef struct { /* ids with (id & mask) == value belong to a node */
  unsigned mask, value;
  int bus, extended;
} tick_watched;

typedef struct { /* how a torque is sent */
  int length, rounding; /* rounding 0: integer, 1: single precision, 2: integer with zero in the middle of its range */
  unsigned char frame[4 + 64]; /* the id, its highest byte first, and the payload */
  tick_field field;
  tick_chain chain, steps, back;
  double lowest, highest, hair; /* hair: hil.drives.wire.HAIR, 0 for single precision */
} tick_encoding;

typedef struct { /* a node: what makes it send a sample */
  int bus, awaited, synced, mutes; /* mutes: nothing is sent to it while nothing answers on its bus */
} tick_channel;

typedef struct { /* a row of hil.safety.rules */
  int measured, node;
  double lower, upper;
} tick_rule;

typedef struct {
  /* sizes */
  int n, m, channels, messages, watched, rules, doubles, integers;
  /* tables */
  tick_message *message;
  tick_watched *watch;
  tick_encoding *encoding;
  tick_channel *channel;
  tick_rule *rule;
  sensing *sensing; /* it reads the samples of this struct, and `carried` */
  const double *displacements, *rates, *ages, *law_q, *law_v; /* by sensing: of joints and samples, and for the law */
  limits *limits;
  pose *pose;
  ladder *ladder;
  proof *proof; /* 0: the drives are not tested */
  tick_call law;
  /* settings */
  int free; /* whether torques alone move the machine */
  int source;     /* whose torques tick_decide sends: hil.safety.stages.Torques */
  int stands, learns, wire_steps, stays; /* hil.safety.stages.TorqueSource */
  double end, ramp_time;
  long long entered;
  int tests, moves; /* whether stage zero tests the drives; whether torques move the machine: not while brakes open */
  int own_memory, memory, estimates, sent_at, elapsed_at;
  int rate_start, status_start;
  double period, memory_period; /* NaN: none */
  unsigned long long stops; /* bit: status of the law that Python handles */
  /* state in one block each, kept until a tick is complete */
  double *numbers, *kept_numbers;
  long long *times, *kept_times;
  /* ARRAYS of STATE */
  /* ARRAYS of tick */
  double *controller_memory;
  const double *memory_start;
  int mute; /* whether a drive that mutes has not answered */
  const char *trouble;
  const int *failed; /* whether a call in Python has raised an exception, which Python raises as soon as C returns */
} tick;

void tick_begin(tick *k, long long began);
double tick_encode(tick_encoding *encoding, double torque);
int tick_take(tick *k, int bus, unsigned id, int flags, int length, const unsigned char *data, long long time);
int tick_missing(const tick *k);
int tick_sense(tick *k, long long now);
int tick_asks(const tick *k);
int tick_decide(tick *k, long long now, double elapsed, double task_time);
int tick_act(tick *k);
void tick_undo(tick *k);

typedef struct { /* a frame as hil.recorder.memory.FRAME has it */
  long long time; /* [ns] */
  unsigned id;
  unsigned char bus, flags, length, unused;
  unsigned char data[64];
} tick_frame;

int tick_frames(tick *k, const tick_frame *in, int count, long long began, long long sensed, long long decided,
                double elapsed, double task_time);
