"""Right operations whose derivatives are hard to judge by differences: they are ill-conditioned."""

from __future__ import annotations

TEXTS = (
    "op kalman(P[b,i,j], h[i], r) -> K; Ph[b,i] = sum[j](P[b,i,j]*h[j]); "
    "S[b] = sum[i](h[i]*Ph[b,i]) + r; K[b,i] = Ph[b,i]/S[b]",
    "op kalman_update(m[i], P[i,j], h[i], z, r) -> M, V; Ph[i] = sum[j](P[i,j]*h[j]); "
    "S = sum[i](h[i]*Ph[i]) + r; K[i] = Ph[i]/S; M[i] = m[i] + K[i]*(z - sum[j](h[j]*m[j])); "
    "V[i,j] = P[i,j] - K[i]*Ph[j]",
    "op small_sum(x[n,k]) -> y; y[n,k] = x[n,k]/sum[l](x[n,l])",
    "op small_square(x[n,k], m[k]) -> y; d[n] = sum[k](x[n,k]*m[k]); y[n,k] = x[n,k]/d[n]**2",
    "op ratio(a[n], b[n], c[n]) -> y; y[n] = a[n]/(b[n] - c[n])",
    "op log_of_difference(a[n], b[n]) -> y; y[n] = log((a[n] - b[n])**2)",
    "op log_odds(p[n,k]) -> y; y[n,k] = log(p[n,k]/(1 - p[n,k]))",
    "op angle(x[n], y[n]) -> a; a[n] = atan2(y[n], x[n])*atan2(x[n], y[n])",
    "op beta(a[n], b[n]) -> y; y[n] = lgamma(a[n]) + lgamma(b[n]) - lgamma(a[n] + b[n])",
    "op student(x[n,d], v) -> y; y[n] = lgamma((v + size(d))/2) - lgamma(v/2) "
    "- (v + size(d))/2*log(1 + sum[d](x[n,d]**2)/v)",
    "op dirichlet(a[k], x[n,k]) -> y; "
    "y[n] = lgamma(sum[k](a[k])) - sum[k](lgamma(a[k])) + sum[k]((a[k] - 1)*log(x[n,k]))",
    "op long_product(x[n,k]) -> y; y[n] = prod[k](x[n,k]*3)/(1 + prod[k](x[n,k]))",
    "op others(x[i]) -> y; y[i] = prod[j | j != i](x[i] - x[j])",
    "op barycentric(x[i], f[i], t) -> y; w[i] = 1/prod[j | j != i](x[i] - x[j]); "
    "y = sum[i](w[i]*f[i]/(t - x[i]))/sum[i](w[i]/(t - x[i]))",
    "op cholesky(a, b, c, d, e, f) -> r, t, l; p = sqrt(a**2 + 1); q = b/p; "
    "r = sqrt(c**2 + 2 - q**2); s = d/p; t = (e - s*q)/r; l = sqrt(f**2 + 3 - s**2 - t**2)",
    "op inverse(a[n], b[n], c[n], d[n]) -> y, z; D[n] = a[n]*d[n] - b[n]*c[n]; y[n] = d[n]/D[n]; "
    "z[n] = -b[n]/D[n]",
    "op continued(a[n], b[n]) -> y; y[n] = 1/(a[n] + 1/(b[n] + 1/(a[n] + 1/b[n])))",
    "op sharp(x[n,k]) -> y; y[n,k] = exp(30*x[n,k])/sum[l](exp(30*x[n,l]))",
    "op oscillating(x[n], w[n]) -> y; y[n] = sin(200*x[n])*w[n]",
    "op power(x[n], y[n]) -> z; z[n] = (x[n]**2)**(5*y[n])",
    "op norm_gradient(x[n,d]) -> y; y[n,d] = x[n,d]/sqrt(sum[e](x[n,e]**2))**3",
    "op variance_ratio(x[n,k], y[n,k]) -> F; "
    "F[n] = sum[k]((x[n,k] - mean[l](x[n,l]))**2)/sum[k]((y[n,k] - mean[l](y[n,l]))**2)",
    "op correlation(x[n], y[n]) -> r; a[n] = x[n] - mean[m](x[m]); b[n] = y[n] - mean[m](y[m]); "
    "r = sum[n](a[n]*b[n])/sqrt(sum[n](a[n]**2)*sum[n](b[n]**2))",
    "op softmax(A[*p,k,*q]; dim=axis(k)) -> S; "
    "S[*p,k,*q] = exp(A[*p,k,*q])/sum[l](exp(A[*p,l,*q]))",
    "op mahalanobis(x[i], m[i], P[i,j]) -> y; "
    "y = sqrt(sum[i,j]((x[i] - m[i])*P[i,j]*(x[j] - m[j]))**2)",
    "op tangent(x[n], y[n]) -> z; z[n] = tan(x[n]*y[n])/(x[n] - y[n])",
)
