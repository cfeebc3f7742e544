/* The structs of the torques that are sent. Python reads this file as it stands, so it has no preprocessor lines. */

typedef struct { /* hil.safety.limits.Limits */
  int m, timed;   /* timed: whether `now` tells how much time has passed; if not, it is one period */
  double period;  /* of the loop: the longest time that counts [s] */
  long long last; /* when the last torques were computed [ns]; 0 before the first */
  /* ARRAYS of limits */
} limits;

void limits_apply(limits *l, long long now, const double *held);
void limits_keep(limits *l, long long now);

typedef struct { /* hil.safety.pose_hold.PoseHold */
  int n, m, at_rest, is_sound;         /* at_rest: whether `hold` has the results of a pose at rest */
  double t;                            /* at which the model is evaluated [s] */
  tick_call hold;                      /* t, q, v, parameters -> u, the remaining acceleration, W */
  double period, stiffness, damping, integral_gain; /* of the loop [s]; of the feedback */
  double stop_rate, stop_decay;                     /* of a stop [1/s]; what a period leaves of a speed */
  double spring, slowing, wall, wall_damping;       /* while a hand guides the machine */
  double blind_time, blind_share;                   /* of a motor that is braked blindly */
  /* ARRAYS of pose */
} pose;

enum { HELD, NO_EQUATIONS, NO_POSE }; /* there are torques, the model has no equations of motion, or no pose is known */

int pose_weigh(pose *p);
int pose_stand(pose *p, int learns);
void pose_keep_stand(pose *p);
int pose_guide(pose *p, int follows);
void pose_keep_guide(pose *p);
int pose_balance(pose *p, int sound);
void pose_stop(pose *p, double decay, double elapsed, int limited);
void pose_keep_stop(pose *p);

typedef struct { /* hil.safety.ladder.Ladder */
  int m, still_ticks;
  double left, fastest, next_fastest; /* largest speed of any joint in the stop [joint unit/s] */
  /* ARRAYS of ladder */
} ladder;

int ladder_watch(ladder *l);
void ladder_keep(ladder *l);

/* What the test of the drives shows of one: the wrong polarity, too much torque, none, or too much motion; or nothing, but
   its round is to be judged. */
enum { SHOWS_REVERSED = 1, SHOWS_EXCESS, SHOWS_NOTHING, SHOWS_MOTION, SHOWS_ROUND };

typedef struct { /* hil.safety.proof.TorqueProof */
  int m, together;                                /* together: whether motors are redundant */
  int quarter, late, judged, round_tick;          /* of a round, in ticks; round_tick: -1: there is none */
  long long samples, room;                        /* rows that are written, and for which there is memory */
  double period, certain, *rows;                  /* rows of hil.safety.axis_motion */
  int shows, drive;                               /* the last finding, and the drive */
  double response;                                /* of that drive: the share of its torque that acts */
  /* ARRAYS of proof */
} proof;

int proof_add(proof *p, long long now, double elapsed, const double *positions, const double *speeds, const double *held);
int proof_judge(proof *p, long long now);
void proof_torques(proof *p);
void proof_keep(proof *p);
void proof_sent(proof *p, long long now, const double *torques);
