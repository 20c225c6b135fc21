// Loops over arrays stored as float, BFloat16 or Float16. A compiler vectorizes conversions of
// BFloat16, which are integer arithmetic, but not those of Float16: arrays of it pass through a
// strip of float32 that stays in the L1 cache. Thread-safe (free functions).
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "worker/backend/cpu/storage.h"

namespace ringmaster::cpu {

inline constexpr int64_t kStrip = 128;  // elements

// What a loop sees of one array: itself, or a strip of it. A const array is read, another written.
template <typename T>
class StripWindow {
 public:
  explicit StripWindow(T* array) : array_(array) {}
  T* Open(int64_t at, int64_t) { return array_ + at; }
  void Close(int64_t, int64_t) {}

 private:
  T* const array_;
};

template <>
class StripWindow<const Float16> {
 public:
  explicit StripWindow(const Float16* array) : array_(array) {}
  const float* Open(int64_t at, int64_t count) {
    Widen(array_ + at, strip_, count);
    return strip_;
  }
  void Close(int64_t, int64_t) {}

 private:
  const Float16* const array_;
  float strip_[kStrip];
};

template <>
class StripWindow<Float16> {
 public:
  explicit StripWindow(Float16* array) : array_(array) {}
  float* Open(int64_t, int64_t) { return strip_; }
  void Close(int64_t at, int64_t count) { Narrow(strip_, array_ + at, count); }

 private:
  Float16* const array_;
  float strip_[kStrip];
};

template <typename Body, typename... T>
void RunStrips(int64_t count, int64_t strip, Body& body, StripWindow<T>... windows) {
  for (int64_t at = 0; at < count; at += strip) {
    const int64_t length = std::min(strip, count - at);
    body(at, length, windows.Open(at, length)...);
    (windows.Close(at, length), ...);
  }
}

// body(at, length, p...) once for all of [0, count), or strip after strip where a Float16 is among
// `arrays`: p[i] is element at + i of its array, as float where that is Float16. What a body gets
// for an array that is not const it writes whole, and does not read.
template <typename Body, typename... T>
void InStrips(int64_t count, Body&& body, T*... arrays) {
  constexpr bool kCut = (std::is_same_v<std::remove_const_t<T>, Float16> || ...);
  RunStrips<Body, T...>(count, kCut ? kStrip : count, body, StripWindow<T>(arrays)...);
}

// Element by element, rounded half to even.
template <typename From, typename To>
void Convert(const From* from, To* to, int64_t count) {
  if constexpr (std::is_same_v<From, Float16> && std::is_same_v<To, float>) {
    Widen(from, to, count);
  } else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, Float16>) {
    Narrow(from, to, count);
  } else {
    InStrips(
        count,
        []<typename X, typename Y>(int64_t, int64_t length, const X* x, Y* y) {
          for (int64_t i = 0; i < length; ++i) y[i] = Y(static_cast<float>(x[i]));
        },
        from, to);
  }
}

}  // namespace ringmaster::cpu
