// Eight float32 numbers as one, with Eigen's elementary functions: what the formulas of the
// elementwise family (common/graph/ops/unary.h), softmax and the like are computed in on a CPU.
// Thread-safe (values and free functions).
//
// The bits of a function are a matter of its polynomial, of fused multiply-add and of the width of
// a packet: Eigen chooses all three by the compiler's flags. So this is always compiled for AVX2
// with FMA, the floor of every supported machine, never for the host: what a wider instruction set
// gained would make a numerics class of its own. And loops run over whole packets (MapPackets):
// the rest of an array is padded, because Eigen's functions of single numbers are others, and a
// value may not depend on its place in a tensor.
#pragma once

#include <Eigen/Core>
#include <unsupported/Eigen/SpecialFunctions>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "worker/backend/cpu/strips.h"

#if !defined(__AVX2__) || !defined(__FMA__) || defined(__AVX512F__)
#error "packets are AVX2 with FMA whatever the machine: see above"
#endif

namespace ringmaster::cpu {

class Packet {
 public:
  static constexpr int64_t kSize = 8;
  using Lanes = Eigen::internal::Packet8f;
  // A comparison's result by lane: all bits or none.
  struct Mask {
    Lanes lanes;
  };

  Packet(Lanes lanes) : lanes_(lanes) {}  // NOLINT: Eigen's functions return them
  explicit Packet(double all) : lanes_(_mm256_set1_ps(static_cast<float>(all))) {}
  static Packet Load(const float* from) { return {_mm256_loadu_ps(from)}; }
  void Store(float* to) const { _mm256_storeu_ps(to, lanes_); }

  friend Packet operator+(Packet a, Packet b) { return {_mm256_add_ps(a.lanes_, b.lanes_)}; }
  friend Packet operator-(Packet a, Packet b) { return {_mm256_sub_ps(a.lanes_, b.lanes_)}; }
  friend Packet operator*(Packet a, Packet b) { return {_mm256_mul_ps(a.lanes_, b.lanes_)}; }
  friend Packet operator/(Packet a, Packet b) { return {_mm256_div_ps(a.lanes_, b.lanes_)}; }
  friend Mask operator<=(Packet a, Packet b) {
    return {Eigen::internal::pcmp_le(a.lanes_, b.lanes_)};
  }
  friend Mask operator>=(Packet a, Packet b) { return b <= a; }

  friend Packet Select(Mask condition, Packet yes, Packet no) {
    return {Eigen::internal::pselect(condition.lanes, yes.lanes_, no.lanes_)};
  }
  friend Packet Abs(Packet x) { return {Eigen::internal::pabs(x.lanes_)}; }
  friend Packet Erf(Packet x) { return {Eigen::internal::generic_fast_erf_float(x.lanes_)}; }
  friend Packet Exp(Packet x) { return {Eigen::internal::pexp(x.lanes_)}; }
  friend Packet Expm1(Packet x) { return {Eigen::internal::pexpm1(x.lanes_)}; }
  friend Packet Log1p(Packet x) { return {Eigen::internal::plog1p(x.lanes_)}; }
  friend Packet TanhOf(Packet x) { return {Eigen::internal::ptanh(x.lanes_)}; }

 private:
  Lanes lanes_;
};

// How many floats hold `length` of them as whole packets.
constexpr int64_t PaddedLength(int64_t length) {
  return (length + Packet::kSize - 1) / Packet::kSize * Packet::kSize;
}

// What a loop over packets sees of one array: strips of it as whole packets of float32, in place
// where it is float and the strip's length allows that, else in a copy that ends with zeros. A
// const array is read, another written.
template <typename T>
class PacketWindow {
 public:
  static_assert(kStrip % Packet::kSize == 0);
  using Element = std::remove_const_t<T>;
  using Float = std::conditional_t<std::is_const_v<T>, const float, float>;
  explicit PacketWindow(T* array) : array_(array) {}

  Float* Open(int64_t at, int64_t length) {
    if constexpr (std::is_same_v<Element, float>) {
      if (length % Packet::kSize == 0) return array_ + at;
    }
    if constexpr (std::is_const_v<T>) {
      Convert(array_ + at, strip_, length);
      std::fill(strip_ + length, strip_ + PaddedLength(length), 0.0F);
    }
    return strip_;
  }
  void Close(int64_t at, int64_t length) {
    if constexpr (!std::is_const_v<T>) {
      if (std::is_same_v<Element, float> && length % Packet::kSize == 0) return;
      Convert(strip_, array_ + at, length);
    }
  }

 private:
  T* const array_;
  alignas(32) float strip_[kStrip];
};

template <typename F, typename T, typename... From>
void RunPackets(int64_t count, const F& f, PacketWindow<T> to, PacketWindow<From>... from) {
  for (int64_t at = 0; at < count; at += kStrip) {
    const int64_t length = std::min(kStrip, count - at);
    float* y = to.Open(at, length);
    [&](const auto*... x) {
      for (int64_t i = 0; i < length; i += Packet::kSize) f(Packet::Load(x + i)...).Store(y + i);
    }(from.Open(at, length)...);
    to.Close(at, length);
  }
}

// to[i] = f(from[i]...), packet after packet. `to` may be one of `from`.
template <typename F, typename T, typename... From>
void MapPackets(int64_t count, const F& f, T* to, const From*... from) {
  RunPackets<F, T, const From...>(count, f, PacketWindow<T>(to), PacketWindow<const From>(from)...);
}

}  // namespace ringmaster::cpu
