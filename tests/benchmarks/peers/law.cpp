// The law of the coordinated robots in C++: terms by Pinocchio, pseudoinverses by Eigen's complete orthogonal
// decomposition; the same equations and numbers as `algebra.py` and `tree.py`.
#include <pinocchio/algorithm/compute-all-terms.hpp>
#include <pinocchio/algorithm/aba.hpp>
#include <pinocchio/algorithm/frames.hpp>
#include <pinocchio/algorithm/jacobian.hpp>
#include <pinocchio/algorithm/kinematics.hpp>
#include <pinocchio/algorithm/rnea.hpp>
#include <pinocchio/multibody/data.hpp>
#include <pinocchio/multibody/model.hpp>

#include <Eigen/Dense>
#include <cmath>
#include <ctime>

namespace pin = pinocchio;
using Eigen::MatrixXd, Eigen::Vector2d, Eigen::Vector3d, Eigen::VectorXd;
using Angles = Eigen::Matrix<double, 5, 1>;
using Inputs = Eigen::Matrix<double, 6, 1>;
constexpr double TASK_GAIN = 10.0;  // Baumgarte's alpha = beta [1/s]

struct Law {
  pin::Model model;
  pin::Data data;
  pin::FrameIndex end, object;
  Eigen::Matrix<double, 5, 6> B;
  Eigen::Matrix<double, 6, 5> J = decltype(J)::Zero(), K = decltype(K)::Zero();

  Law() {
    model.gravity.linear() = Vector3d(0.0, -9.8, 0.0);
    for (int i = 0; i < 5; ++i) {
      const pin::SE3 place(Eigen::Matrix3d::Identity(), Vector3d(i ? 1.0 : 0.0, 0.0, 0.0));
      model.addJoint(i, pin::JointModelRZ(), place, "joint" + std::to_string(i));
      model.appendBodyToJoint(i + 1, pin::Inertia(1.0, Vector3d(0.5, 0.0, 0.0), Eigen::Matrix3d::Identity()), pin::SE3::Identity());
    }
    end = model.addFrame(pin::Frame("end", 5, 0, pin::SE3(Eigen::Matrix3d::Identity(), Vector3d(1.0, 0.0, 0.0)), pin::OP_FRAME));
    object = model.addFrame(pin::Frame("object", 3, 0, pin::SE3(Eigen::Matrix3d::Identity(), Vector3d(0.5, 0.0, 0.0)), pin::OP_FRAME));
    data = pin::Data(model);
    Eigen::Matrix<double, 5, 6> absolute = decltype(absolute)::Zero();  // B on absolute angles
    const int row[6] = {0, 1, 2, 2, 3, 4}, less[4] = {0, 1, 3, 4};
    for (int i = 0; i < 6; ++i) absolute(row[i], i) = 1.0;
    for (int i = 0; i < 4; ++i) absolute(less[i], i + 1) = -1.0;
    B = absolute;
    for (int i = 3; i >= 0; --i) B.row(i) += B.row(i + 1);  // S^T B: absolute angles are sums of joint angles
  }

  Inputs command(double t, const Angles& q, const Angles& v) {
    pin::forwardKinematics(model, data, q, v, VectorXd::Zero(5));
    pin::updateFramePlacements(model, data);
    pin::computeJointJacobians(model, data);
    const Angles free_force = -pin::nonLinearEffects(model, data, q, v);
    const auto drift = [&](pin::FrameIndex at) -> Vector2d {
      return pin::getFrameClassicalAcceleration(model, data, at, pin::LOCAL_WORLD_ALIGNED).linear().head<2>();
    };
    const Vector2d loop_drift = drift(end), task_drift = drift(object);
    pin::getFrameJacobian(model, data, end, pin::LOCAL_WORLD_ALIGNED, J);
    pin::getFrameJacobian(model, data, object, pin::LOCAL_WORLD_ALIGNED, K);
    const Vector2d place = data.oMf[object].translation().head<2>();
    pin::computeMinverse(model, data, q);
    Eigen::Matrix<double, 5, 5> Minv = data.Minv;
    Minv.triangularView<Eigen::StrictlyLower>() = Minv.transpose();
    const Eigen::Matrix<double, 2, 5> Ahat = J.topRows<2>();
    Eigen::Matrix<double, 3, 5> A;
    A << K.topRows<2>(), K.row(5);
    Vector3d violation(place[0] - 1.5, place[1] - (1.0 - std::cos(t)) / 2, q[0] + q[1] + q[2]);
    Vector3d rate = A * v;
    rate[1] -= std::sin(t) / 2;
    Vector3d b = -2.0 * TASK_GAIN * rate - TASK_GAIN * TASK_GAIN * violation;
    b.head<2>() -= task_drift;
    b[1] += std::cos(t) / 2;
    const Eigen::Matrix<double, 5, 2> half = Minv * Ahat.transpose();
    const Eigen::Matrix2d S = Ahat * half;
    const Eigen::Matrix<double, 5, 2> R = half * S.completeOrthogonalDecomposition().pseudoInverse();
    const Angles moved_free = Minv * free_force;
    const Angles a_c = moved_free + R * (-loop_drift - Ahat * moved_free);
    Eigen::Matrix<double, 5, 6> moved = Minv * B;
    moved -= R * (Ahat * moved);
    const Eigen::Matrix<double, 3, 6> T = A * moved;
    return T.completeOrthogonalDecomposition().solve(b - A * a_c);
  }
};

static double between(const timespec& a, const timespec& b) { return double(b.tv_sec - a.tv_sec) + 1e-9 * double(b.tv_nsec - a.tv_nsec); }

// `calls` commands at the states 0 .. count - 1 in turn, or the clock alone where `count` is 0
extern "C" void peer_calls(long long calls, long long count, const double* t, const double* q, const double* v, double* u, double* seconds) {
  static Law law;
  for (long long k = 0; k < calls; ++k) {
    const long long j = count ? k % count : 0;
    const Angles at(Eigen::Map<const Angles>(q + 5 * j)), rates(Eigen::Map<const Angles>(v + 5 * j));
    timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    if (count) Eigen::Map<Inputs>(u + 6 * j) = law.command(t[j], at, rates);
    clock_gettime(CLOCK_MONOTONIC, &after);
    seconds[k] = between(before, after);
  }
}
