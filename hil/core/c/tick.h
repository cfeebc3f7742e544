/* Structs and functions of the tick in C: sensing, the torques that are sent, the tick, its row. Constants are those of
   SHARED in hil.core.compiled. Python reads this file as it stands, so it has no preprocessor lines. It makes the arrays
   whose comment begins with their size in brackets. */

/* Sensing: what it remembers, what it reads, and its verdicts. */

typedef void (*tick_function)(const double **arguments, double **results);

typedef struct { /* a compiled function with its buffers */
  tick_function function;
  double **arguments, **results;
} tick_call;

enum { ASKED = 8 }; /* number of SYNCs and commands that are remembered; an older reply is stale */

/* What the last windows showed of a motor: its torque arrives; one window of neither; from LOST on: in so many windows
   none of it arrives; nor does it, and friction does not explain that; anything else. Stage zero has not proved the
   motor, and nor has its motion since; nor that, and the last window went against it. */
enum { ARRIVES = 0, BETWEEN = 1, LOST = 2, NOT_FRICTION = -1, OTHER = -2, UNPROVED = -3, AGAINST = -4 };

/* Windows within which a disturbance that comes at once is there: the one in which it comes, and two more. */
enum { WINDOWS = 3 };

typedef struct { /* what is wrong: hil.core.constants.Found, and the numbers that its sentence needs */
  int found, channel, stops, cause;
  double numbers[3];
} sense_verdict;

typedef struct { /* a measured displacement, and what a sample of it is checked by: hil.sensing.channels.Channel */
  int feedback;              /* ON_SYNC, ON_CYCLIC or ON_REPLY */
  double resolution, speed_limit, leap, visible, held, position_error, speed_error, weight;
  int first_factor, factors;     /* of its row of the Jacobian, where that is constant */
} sense_channel;

typedef struct { /* the windows in which the motion is compared with the model: hil.sensing.tracking.TrackingMonitor */
  int n, m, estimated, most_windows[2];
  double window, quick, longest, lag, share, level_model, rate_model;
  const double *limits, *felt, *resolved, *report_lag, *least_torque, *quick_least, *slow, *friction;
  tick_call disturbance; /* t, q, v = 0, parameters, acceleration -> d and the shares */
  tick_call floor;       /* t, q -> the largest d that errors of the samples alone can cause */
  int beyond, lacking, windows, stopped, halved;
  double window_elapsed, half_elapsed, quick_elapsed;
  sense_verdict verdict;
  double *moved, *half_moved, *later_moved; /* [n] sum of v - v- in this window, in its first half and in the rest */
  double *quick_moved;                      /* [n] the same in the short window */
  double *sent, *half_sent, *quick_sent;    /* [m] integral of the torques sent in it, its first half, the short one */
  double *made;                             /* [m] integral of the torques that the drives report */
  double *least, *most;                     /* [m] smallest and largest torque sent in this window */
  double *where;                            /* [m] positions at its middle, at its end the way since then */
  double *quick_last, *quick_before;        /* [m] mean torques of the last two short windows */
  double *before_u, *before_d;              /* [m] mean torque and d of the window before */
  double *d, *allowed;                      /* [m] d of this window, and its limits */
  double *came;                             /* [m] by how much d has changed at once */
  double *floors;                           /* [m] largest d by errors of the samples; NaN: none is known yet */
  double *scratch;                          /* [2 m] */
  double *halves;                           /* [4 m] d, then u, of both halves */
  double *last, *last_allowed;              /* [windows] d of the last windows and its limits, the oldest first */
  long long *arrivals;                      /* [2 m] states of the motors after short windows, then after long ones */
  long long *after;                         /* [m] the same after this window */
  int *unproved;                            /* [m] whether stage zero has not proved the motor */
  int *stands;                              /* [m] whether the joint stands still */
} tracking;

typedef struct { /* hil.sensing.sensing.Sensing */
  int n, m, channels, filtered, linear, constant;
  long long period, now, read; /* period of the ticks; times of the last finite state, and of the last reading [ns] */
  double interval, filter_time; /* ordinary time between samples, by which an age may be wrong; of the rate filters [s] */
  double old, carried; /* age from which a channel follows the model; longest time for which a sample is carried on [s] */
  double residual_tolerance;              /* NaN: by the resolutions */
  double ahead;  /* time by which the law gets the state ahead [s]; 0: it gets that of now */
  int evenly;    /* whether it gets the positions at the moment when the tick was due instead */
  sense_channel *channel;
  const int *factor_index;
  const double *factor;
  tick_call predict;     /* times t and h, state, u, parameters -> the state after h; no function: there is none */
  tick_call coordinates; /* of hil.sensing.coordinates */
  tick_call positions;   /* q -> displacements, where they are not linear */
  tick_call speeds_at;   /* t, q, v -> their rates, where the Jacobian is not constant */
  tracking *tracking;    /* 0: the motion is not compared with the model */
  int contradictions;    /* ticks in a row in which redundant measurements contradict each other */
  int valid;             /* whether every channel has sent a sample, all is measured and all numbers are finite */
  double residual;       /* largest disagreement of redundant measurements */
  int verdicts, placed;  /* placed: whether `predicted` has the displacements of this tick */
  sense_verdict *verdict;
  double *q, *v;                       /* [n] the last finite state */
  double *step_q, *step_v;             /* [n] the start point of the solver */
  double *carried_q;                   /* [n] its coordinates now */
  double *estimate_q, *estimate_v;     /* [n] the state of this tick */
  double *law_q, *law_v;               /* [n] the state that the law gets */
  double *innovation;                  /* [n] v - v- */
  double *command;                     /* [m] torques in the frames that were sent last */
  double *position, *velocity, *torque; /* [channels] the last sample of each node */
  long long *sample_time;              /* [channels] when it was received */
  double *accepted_position, *accepted_velocity; /* [channels] the last one that was plausible */
  long long *accepted_time;            /* [channels] when that was measured */
  long long *seen, *received;          /* [channels] when the last one that was looked at was measured, and received */
  long long *rejected;                 /* [channels] samples in a row that were not plausible */
  double *travel;                      /* [channels] motion of the model while the encoder stands still */
  long long *still_since;              /* [channels] since when it does */
  double *scale_start;                 /* [channels] position at the beginning of the window of the scale */
  double *scale_moved, *scale_path;    /* [channels] way and path since then, by the speeds */
  long long *scale_since, *scale_beyond; /* [channels] its beginning, and windows in a row that differ */
  double *track_position, *track_rate; /* [channels] of the filter of the speeds */
  long long *track_time;               /* [channels] when it was computed */
  double *rates, *before;              /* [channels] speeds of the last two samples */
  double *expected, *predicted;        /* [channels] speeds and displacements at the start point of the solver */
  double *displacements, *speeds, *ages; /* [channels] now */
  double *slack;                       /* [channels] error of the displacement by its age */
  double *misfits;                     /* [channels] */
  long long *syncs, *commands;         /* [asked] when the last ones were sent, the newest first */
} sensing;

int sense_read(sensing *s, double t, long long now, long long due, int free, long long sync, long long command);
void track_begin(tracking *w);
int track_judge(tracking *w, double t, double elapsed, const double *q, const double *innovation, const double *u,
                const double *positions, const double *made, const double *speeds);

typedef struct { /* hil.core.controller.Controller: the law's own memory, then that of an estimator and of commands */
  int count, own;      /* numbers, and those that belong to the law */
  int sent_at, inputs; /* where the memory has what the drives got last */
  double period;       /* with which it changes once per period [s]; NaN: it is integrated over time */
  const double *rate;  /* of the last command */
  double *values, *start; /* [memory] the memory, and what it starts with */
} law_memory;

void memory_integrate(law_memory *l, double elapsed);
void memory_take(law_memory *l, const double *sent, int moves);

/* The torques that are sent. */

typedef struct { /* hil.safety.torques.PoseHold */
  int n, m, at_rest, is_sound;         /* at_rest: whether `hold` has the results of a pose at rest */
  int known, sound;                    /* whether state and pose are known; whether every measurement may be used */
  double t;                            /* at which the model is evaluated [s] */
  tick_call hold;                      /* t, q, v, parameters -> u, the remaining acceleration, W */
  tick_call others;                    /* `inertia` of the usable motors while the others move freely */
  double period, stiffness, damping, integral_gain; /* of the loop [s]; of the feedback */
  double stop_rate, stop_decay;                     /* of a stop [1/s]; what a period leaves of a speed */
  double spring, slowing, wall, wall_damping;       /* while a hand guides the machine */
  double blind_time, blind_share;                   /* of a motor that is braked blindly */
  double *q, *v;                       /* [n] the state of the tick */
  double *back;                        /* [n] -v */
  double *y, *rates;                   /* [m] displacements and speeds of the motors */
  int *usable, *driven;                /* [m] whether these may be used; whether the drive makes its torque */
  double *inertia;                     /* [m m] W, column by column */
  double *held;                        /* [m] torques that hold the pose by the model */
  double *torques;                     /* [m] those of this tick */
  double *scratch;                     /* [m] */
  double *torque_limits;               /* [m] of the drives */
  double *anchor, *next_anchor;        /* [m] positions that are held */
  double *away, *away_speed;           /* [m] motion from them that other torques cause on purpose */
  double *integral, *learned;          /* [m] of the error, before and after this tick */
  double *bias, *next_bias, *largest;  /* [m] its torque, and the largest one */
  double *at_release;                  /* [m] `held` when the pose was held last */
  double *weighs;                      /* [m] smallest torque by gravity that the bias follows */
  double *grip, *guide_limits;         /* [m] torque at which the spring slips, and the largest one in the hand */
  double *lower, *upper;               /* [m] where the walls begin */
  double *path, *path_speed;           /* [m] y_r and its speed in a stop */
  double *next_path, *next_speed;      /* [m] the same after this tick */
  int *followed;                       /* [m] whether the motor has followed it */
  int *blind;                          /* [m] whether its measurement is not trusted any more */
  double *blind_rate, *next_blind;     /* [m] its speed by the model then */
  double *sound_pose;                  /* [n] the last pose that can be trusted */
  double *sound_rates;                 /* [m] the last speeds that can be */
} pose;

enum { HELD, NO_EQUATIONS }; /* there are torques, or the model has no equations of motion */

int pose_weigh(pose *p);

typedef struct { /* hil.safety.ladder.Ladder */
  int m, still_ticks;
  double left, fastest, next_fastest; /* largest speed of any joint in the stop [joint unit/s] */
  double *speeds;            /* [m] of the joints in this tick */
  double *slow, *noise;      /* [m] below which a joint stands, and below which a speed is noise */
  int *sound;                /* [m] whether the speed may be used */
  int *still, *next_still;   /* [m] ticks in a row in which the joint stands */
} ladder;

int ladder_watch(ladder *l);
void ladder_keep(ladder *l);

/* What the test of the drives shows of one: the wrong polarity, too much torque, none, too much motion, or such a motion that
   its polarity may be wrong; or nothing, but its round is over, or shows it. */
enum { SHOWS_REVERSED = 1, SHOWS_EXCESS, SHOWS_NOTHING, SHOWS_MOTION, SHOWS_OPPOSED, SHOWS_ROUND };

typedef struct { /* hil.safety.proof.TorqueProof */
  int m, together;                                /* together: whether motors are redundant */
  int quarter, late, judged, round_tick, slow;    /* of a round, in ticks; round_tick: -1: there is none; slow: of a torque */
  long long samples, room;                        /* rows that are written, and for which there is memory */
  double period, lag, *rows;                      /* lag: after which speeds show a torque [s]; rows of hil.safety.proof.AxisMotion */
  double reversed, certain;                       /* hil.safety.proof.REVERSED and CERTAIN */
  tick_call round;                                /* -> whether the present round contradicts the model */
  int shows, drive, moved;                        /* the last finding, the drive, and the axis that has left the pose */
  double response;                                /* of that drive: the share of its torque that acts */
  double *inertia, *projector;      /* [m m] W at the first pose, and W W^+; row by row */
  double *position_step, *rough;    /* [m] steps of the positions that speeds follow from; squares of third differences */
  double *least_step, *speed_step;  /* [m] steps of the speeds, and those of the same noise as they were measured */
  double *noise;                    /* [m] error of a difference of two speeds as a torque */
  double *turns;                    /* [m] 1 where a displacement turns the pose of the others */
  double *most_travel, *travel;     /* [m] largest motion that the test explains, and the motion */
  int *loaded;                      /* [m] whether the axis carries so much that a torque that is missing shows */
  double *test, *torques;           /* [m] torque of this round, and with the sign of this tick */
  double *pushed, *accelerations;   /* [m] accelerations that these cause */
  double *away, *away_speed;        /* [m] motion that they have caused, up to this tick */
  double *ahead, *ahead_speed;      /* [m] up to the next one */
  double *changes, *impulses;       /* [m] change of the speed, and impulse sent, over the ticks that are judged */
  double *means, *spreads;          /* [m] mean torque that holds, and spread of those sent */
  double *explained;                /* [m] what this drive alone explains of the squares of what is not explained */
  double *share, *doubt;            /* [m] torque that acts as a share of that sent, and its doubt */
  double *late_doubt;               /* [m] the same where the torque may act late */
  double *power;                    /* [m] power that the rest gives the axis [W s] */
  int *driven;                      /* [m] whether the rest drives the axis */
} proof;

int proof_add(proof *p, long long now, double elapsed, const double *positions, const double *speeds,
              const double *ages, const double *held);
int proof_judge(proof *p, long long now);

/* The tick: tables and state. */

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
  tick_operation operations[MOST_OPERATIONS];
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
  tick_expects selects[MOST_SELECTS], expects[MOST_EXPECTS];
  tick_reads reads[MOST_READS];
  long long order, time;   /* its place among the frames that C has taken in place of the drivers, 0: none; when it came [ns] */
  unsigned char data[64];  /* of the last one */
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

typedef struct { /* hil.safety.torques.TorqueSource */
  int m, kind;                        /* kind: hil.core.constants.Torques */
  int learns, tests, steps;           /* whether the integral runs, the drives are tested; steps of the wire */
  double ramp_time, firmer;           /* of a blend [s]; what the damping of CATCH has more, as a share */
  double period;           /* of the loop: the longest time that counts [s] */
  long long last;          /* when the last torques were limited [ns]; 0 before the first */
  pose *pose;
  proof *proof;            /* 0: the drives are never tested */
  tick_encoding *encoding; /* of each drive; 0: their frames are not described, and `carry` rounds torques */
  tick_call carry;         /* torques -> those in the frames that send them */
  double *largest, *steepest; /* [m] limits of size and rate */
  double *wanted, *allowed;   /* [m] torques that are wanted, and within the limits */
  double *goals;              /* [m] */
  double *previous;           /* [m] torques within the limits of the last tick */
  int *clamped;               /* [m] whether a limit has changed them */
  double *torques;            /* [m] that are sent */
  double *rest;               /* [m] what the frames have left out up to now */
  double *unsent;             /* [m] the same with this tick */
} torque_source;

int torques_find(torque_source *s, double since, double elapsed, double decay);
void torques_limit(torque_source *s, long long now);
void torques_keep(torque_source *s, long long now);

typedef struct { /* a node: what makes it send a sample */
  int bus, awaited, synced, mutes; /* mutes: a command of torque enables it, and it is not known to be off */
} tick_channel;

typedef struct {      /* a row of hil.safety.rules */
  const double *value; /* the number that it judges */
  int waits;           /* whether this is an age, which grows until it is judged */
  double lower, upper;
  const char *broken; /* why the tick is given back */
} tick_rule;

typedef struct {
  /* sizes */
  int n, m, channels, messages, watched, rules;
  /* tables */
  tick_message *message;
  tick_watched *watch;
  tick_encoding *encoding;
  tick_channel *channel;
  tick_rule *rule;
  sensing *sensing; /* it reads the samples of this struct, and `carried` */
  torque_source *source;
  ladder *ladder;
  tick_call law;
  law_memory *memory;
  /* settings */
  int free; /* whether torques alone move the machine */
  int healthy; /* whether every drive works without a complaint, so that C takes the frames that say so again */
  int moves;         /* whether torques move the machine: not while brakes open */
  double end;        /* time in the stage from which on Python decides [s] */
  long long entered; /* when the stage began [ns] */
  int estimates, elapsed_at; /* whether the law gets the time since the tick before, and where in its memory */
  int status_start;
  unsigned long long stops; /* bit: status of the law that Python handles */
  /* state */
  double *carried;                               /* [m] torques in the frames that were sent last */
  double *position, *velocity, *torque;          /* [channels] the last sample of each node */
  double *next_torque;                           /* [channels] torque of its next one */
  double *wrapped, *added;                       /* [channels] hil.drives.wire.Unwrapping */
  double *gauges;                                /* [gauges] in the order of hil.drives.settings.GAUGES, by node */
  long long due, began, written;                 /* of this tick [ns]; when torques were sent last */
  long long *alive;                              /* [m] last sign of life of each drive; 0: none */
  long long *sample_time;                        /* [channels] when the last sample was received */
  long long taken;                               /* number of frames that C has taken in place of the drivers */
  double *raw;                                   /* [m] torques in the frames of this tick */
  double *silences;                              /* [m] time since the last sign of life [s]; 0 before the first */
  unsigned long long mute; /* buses on which no command is sent: `tick_mute` */
  const char *trouble;
  const int *failed; /* whether a call in Python has raised an exception, which Python raises as soon as C returns */
} tick;

double tick_encode(tick_encoding *encoding, double torque);
int tick_take(tick *k, int bus, unsigned id, int flags, int length, const unsigned char *data, long long time);
int tick_missing(const tick *k);
unsigned long long tick_mute(const tick *k);
int tick_sense(tick *k, long long now);
int tick_asks(const tick *k);
int tick_decide(tick *k, long long now, double elapsed, double task_time);
int tick_act(tick *k);

typedef struct { /* a frame as hil.recorder.memory.FRAME has it */
  long long time; /* [ns] */
  unsigned id;
  unsigned char bus, flags, length, unused;
  unsigned char data[64];
} tick_frame;

/* The row of a tick. */

typedef struct { /* what a tick records: hil.rig.logbook */
  int columns, copied, state, command, inputs, parameters, block;
  const double **column; /* what the first columns show; those of the simulated plant and of live gains follow */
  double *numbers;       /* time, state, command, and the results of `values` */
  double *times;         /* hil.rig.logbook.TIMES */
  double *unused;        /* a row that finds no room */
  tick_call values;
  int stage, task;               /* number of the stage, and that of the task */
  int let_go;                    /* whether drives may be off by now: ages of their samples say nothing */
  int disturbance, disturbances; /* where the law's observer is in the command; outside the task it stands still */
  unsigned long long *lateness, *period, *execution, *read, *law, *write, *ages; /* in blocks of hil.loop.timing */
  long long *marks; /* of hil.loop.timing.TickStatistics */
  long long nominal;
} tick_log;

typedef struct { /* when the parts of a tick ended, on the run's clock [ns] */
  long long deadline, began, elapsed, read, decided, written;
  double task_time; /* [s] */
  int skipped, counts; /* number of periods without a tick before it; whether the durations of its parts count */
} tick_times;

void log_count(unsigned long long *counts, long long duration);
void log_times(const tick *k, tick_log *g, const tick_times *when);
void log_tick(const tick *k, tick_log *g, const tick_times *when, double *row);
