// Own kernels round products and convolutions, on the block emulator: bias and activation, sums of
// columns, copies with other channels.
#include "worker/backend/cuda/libraries/bias_activation.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "tests/worker/backend/cuda/emulation/block_emulator.h"
#include "worker/backend/cuda/kernel.h"

namespace ringmaster::cuda {
namespace {

using graph::Activation;
using graph::DType;
using testing::Schedule;

// A matrix in host memory, which is the emulator's device memory.
class Matrix {
 public:
  Matrix(int64_t rows, int64_t columns, DType type) : rows_(rows), columns_(columns), type_(type) {
    buffer_.resize(view().bytes() / sizeof(Line) + 1);
    std::memset(buffer_.data(), 0x7e, buffer_.size() * sizeof(Line));
  }

  [[nodiscard]] DeviceMatrix view() const {
    return {const_cast<Line*>(buffer_.data()), rows_, columns_, type_};
  }
  [[nodiscard]] float at(int64_t row, int64_t column) const {
    return WithStorage(type_, [&]<typename T>(T) {
      return static_cast<float>(static_cast<const T*>(view().data)[row * columns_ + column]);
    });
  }
  void Set(int64_t row, int64_t column, float value) {
    WithStorage(type_, [&]<typename T>(T) {
      static_cast<T*>(view().data)[row * columns_ + column] = T(value);
    });
  }
  // Small integers and quarters, exact in every type, and so are their sums.
  void Fill() {
    for (int64_t i = 0; i < rows_ * columns_; ++i) {
      Set(i / columns_, i % columns_, static_cast<float>(i * 37 % 23 - 11) / 4);
    }
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  int64_t rows_, columns_;
  DType type_;
  std::vector<Line> buffer_;
};

constexpr DType kTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
constexpr int64_t kChannels[] = {1, 3, 8, 10, 96, 264};

}  // namespace

TEST_CASE("Bias and activation: every type, any channels, in place") {
  for (const DType type : kTypes) {
    for (const int64_t channels : kChannels) {
      for (const DType from : {type, DType::kFloat32}) {
        for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
          INFO(graph::Name(from) << " to " << graph::Name(type) << ", " << channels);
          Matrix x(7, channels, from);
          Matrix bias(1, channels, DType::kFloat32);
          Matrix y(7, channels, type);
          x.Fill();
          bias.Fill();
          const auto* offsets = static_cast<const float*>(bias.view().data);
          REQUIRE(AddBias(x.view(), offsets, activation, y.view(), nullptr).ok());
          bool same = true;
          for (int64_t row = 0; row < 7; ++row) {
            for (int64_t c = 0; c < channels; ++c) {
              float expected = x.at(row, c) + bias.at(0, c);
              if (activation == Activation::kRelu) expected = std::max(expected, 0.0F);
              same = same && y.at(row, c) == expected;
            }
          }
          CHECK(same);
          if (from != type) continue;
          REQUIRE(AddBias(x.view(), offsets, activation, x.view(), nullptr).ok());
          CHECK(std::memcmp(x.view().data, y.view().data, y.view().bytes()) == 0);
        }
      }
    }
  }
}

TEST_CASE("Bias and activation: without a bias, and NaN is kept") {
  for (const DType type : kTypes) {
    Matrix x(1, 3, type);
    x.Set(0, 0, NAN);
    x.Set(0, 1, -INFINITY);
    x.Set(0, 2, INFINITY);
    REQUIRE(AddBias(x.view(), nullptr, Activation::kRelu, x.view(), nullptr).ok());
    CHECK(std::isnan(x.at(0, 0)));
    CHECK(x.at(0, 1) == 0);
    CHECK(x.at(0, 2) == INFINITY);
  }
}

TEST_CASE("Bias and activation: more elements than one grid covers at once") {
  Matrix x(4096 * 256 / 3 + 5, 3, DType::kFloat32);
  Matrix bias(1, 3, DType::kFloat32);
  bias.Set(0, 0, 1);
  bias.Set(0, 1, 2);
  bias.Set(0, 2, 3);
  std::memset(x.view().data, 0, x.view().bytes());
  REQUIRE(AddBias(x.view(), static_cast<const float*>(bias.view().data), Activation::kNone,
                  x.view(), nullptr)
              .ok());
  bool same = true;
  for (int64_t row = 0; row < x.view().rows; ++row) {
    for (int64_t c = 0; c < 3; ++c) same = same && x.at(row, c) == static_cast<float>(c + 1);
  }
  CHECK(same);
}

TEST_CASE("Sums of columns: every type, any rows and channels, whichever thread runs first") {
  for (const DType type : kTypes) {
    for (const int64_t channels : kChannels) {
      for (const int64_t rows : {1, 5, 300, 3001}) {
        INFO(graph::Name(type) << " " << rows << " x " << channels);
        Matrix x(rows, channels, type);
        x.Fill();
        for (const Schedule schedule : {Schedule::kForward, Schedule::kBackward}) {
          testing::SetSchedule(schedule);
          std::vector<float> sums(static_cast<size_t>(channels), NAN);
          const size_t scratch = ColumnSumWorkspace(x.view());
          std::vector<float> workspace(scratch / sizeof(float) + 1, NAN);
          REQUIRE(SumColumns(x.view(), workspace.data(), sums.data(), nullptr).ok());
          bool same = true;
          for (int64_t c = 0; c < channels; ++c) {
            float expected = 0;
            for (int64_t row = 0; row < rows; ++row) expected += x.at(row, c);
            same = same && sums[static_cast<size_t>(c)] == expected;
          }
          CHECK(same);
          CHECK(std::isnan(workspace.back()));  // no more than it said
        }
        testing::SetSchedule(Schedule::kForward);
      }
    }
  }
}

TEST_CASE("Resize: channels and rows are added as zeros, left out, and made wide") {
  struct Case {
    int64_t rows, channels, to_rows, to_channels;
  };
  for (const DType type : kTypes) {
    for (const DType to : {type, DType::kFloat32}) {
      for (const Case& c : {Case{5, 3, 5, 8}, Case{5, 8, 5, 3}, Case{6, 5, 9, 8}, Case{9, 8, 6, 5},
                            Case{4, 4, 4, 4}}) {
        INFO(graph::Name(type) << " to " << graph::Name(to));
        Matrix x(c.rows, c.channels, type);
        Matrix y(c.to_rows, c.to_channels, to);
        x.Fill();
        REQUIRE(Resize(x.view(), y.view(), nullptr).ok());
        bool same = true;
        for (int64_t row = 0; row < c.to_rows; ++row) {
          for (int64_t k = 0; k < c.to_channels; ++k) {
            const bool inside = row < c.rows && k < c.channels;
            same = same && y.at(row, k) == (inside ? x.at(row, k) : 0.0F);
          }
        }
        CHECK(same);
      }
    }
  }
}

}  // namespace ringmaster::cuda
