/* The functions of the C library that this code calls, declared by hand: a machine without a compiler has no headers
   either, and tcc cannot read all headers. */
typedef __SIZE_TYPE__ size_t;
void *memcpy(void *, const void *, size_t), *memmove(void *, const void *, size_t), *memset(void *, int, size_t);
int memcmp(const void *, const void *, size_t);
double acos(double), acosh(double), asin(double), asinh(double), atan(double), atanh(double), ceil(double), cos(double);
double cosh(double), erf(double), exp(double), expm1(double), fabs(double), floor(double), log(double), log1p(double);
double sin(double), sinh(double), sqrt(double), tan(double), tanh(double), trunc(double);
double atan2(double, double), copysign(double, double), fmod(double, double), hypot(double, double);
double nextafter(double, double), pow(double, double);
long long llrint(double);
#if defined(__TINYC__)
#define INFINITY (1e308 * 10.0)
#define NAN (-(0.0 / 0.0)) /* the processor's own NaN is negative */
#else
#define INFINITY __builtin_inf()
#define NAN __builtin_nan("")
#endif
