/* What sensing remembers, what it reads, and its verdicts. Python reads this file as it stands, so it has no preprocessor
   lines. */

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
  double resolution, speed_limit, leap, interval, visible, held, position_error, speed_error, weight;
  double filter_time;            /* time constant of its rate filter [s] */
  int first_factor, factors;     /* of its row of the Jacobian, where that is constant */
} sense_channel;

typedef struct { /* the windows in which the motion is compared with the model: hil.sensing.tracking.TrackingMonitor */
  int n, m, estimated, most_windows[2];
  double window, quick, longest, lag, share, level_model, rate_model;
  const double *limits, *felt, *resolved, *least_torque, *quick_least, *slow, *friction;
  tick_call disturbance; /* t, q, v = 0, parameters, acceleration -> d and the shares */
  tick_call floor;       /* t, q -> the largest d that errors of the samples alone can cause */
  int beyond, lacking, windows, stopped, halved;
  double window_elapsed, half_elapsed, quick_elapsed;
  sense_verdict verdict;
  /* ARRAYS of tracking */
} tracking;

typedef struct { /* hil.sensing.sensing.Sensing */
  int n, m, channels, filtered, linear, constant, predicts;
  long long period, now, read; /* period of the ticks; times of the last finite state, and of the last reading [ns] */
  double skew, old, residual_tolerance;   /* NaN: by the resolutions */
  double ahead;  /* time by which the law gets the state ahead [s]; 0: it gets that of now */
  int evenly;    /* whether it gets the positions at the moment when the tick was due instead */
  sense_channel *channel;
  const int *factor_index;
  const double *factor;
  tick_call predict;     /* times t and h, state, u, parameters -> the state after h */
  tick_call coordinates; /* of hil.sensing.coordinates */
  tick_call positions;   /* q -> displacements, where they are not linear */
  tick_call speeds_at;   /* t, q, v -> their rates, where the Jacobian is not constant */
  tracking *tracking;    /* 0: the motion is not compared with the model */
  int contradictions;    /* ticks in a row in which redundant measurements contradict each other */
  int valid;             /* whether every channel has sent a sample, all is measured and all numbers are finite */
  double residual;       /* largest disagreement of redundant measurements */
  int verdicts, placed;  /* placed: whether `predicted` has the displacements of this tick */
  sense_verdict *verdict;
  /* ARRAYS of sensing */
} sensing;

int sense_read(sensing *s, double t, long long now, long long due, int free, long long sync, long long command);
void track_begin(tracking *w);
int track_judge(tracking *w, double t, double elapsed, const double *q, const double *innovation, const double *u,
                const double *positions, const double *made, const double *speeds);
int track_arrivals(tracking *w, int is_long, double elapsed, const double *sent, const double *speeds);
void track_cause(tracking *w, const double *d, const double *first, const double *second, const int *still,
                 sense_verdict *found);
