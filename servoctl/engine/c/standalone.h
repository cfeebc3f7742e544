#define number(x) ((V) (x))
#define CONSTANTS(name, count, ...) static const V name[count] = {__VA_ARGS__};
#define select(m, a, b) ((m) ? (a) : (b))
#define keep(m, a) ((m) ? (a) : number(0.0))
#define any(m) (m)
#define invert(m) (!(m))
