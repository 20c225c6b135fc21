// Attributes of ops: plain values, one struct for each op family that has any. Thread-safe.
//
// The ops of a training step, with their operands ([x] = optional):
//   conv2d                        x(N,H,W,C) w(O,h,w,C) [b(O)]     -> y(N,P,Q,O)
//   conv2d_input_gradient         dy w                             -> dx
//   conv2d_weight_gradient        x dy                             -> dw [db]
//   dense                         x(N,I) w(I,O) [b(O)]             -> y(N,O)
//   dense_input_gradient          dy w                             -> dx
//   dense_weight_gradient         x dy                             -> dw [db]
//   batch_norm                    x(..,C) gamma(C) beta(C)         -> y mean(C) variance(C)
//   batch_norm_gradient           x gamma mean variance dy [y]     -> dx dgamma dbeta
//   batch_norm_inference          x gamma beta moving_mean moving_variance -> y
//   relu                          x                                -> y
//   relu_gradient                 y dy                             -> dx
//   max_pool                      x(N,H,W,C)                       -> y
//   max_pool_gradient             x y dy                           -> dx
//   global_average_pool           x(N,H,W,C)                       -> y(N,C)
//   global_average_pool_gradient  dy                               -> dx
//   dropout                       x                                -> y
//   dropout_gradient              dy                               -> dx
//   reshape                       x                                -> y, the same elements
//   cast                          x                                -> y, rounded half to even
//   add                           a b                              -> y
//   softmax_cross_entropy         logits(N,K) labels(N)            -> loss_sum() correct()
//   softmax_cross_entropy_gradient  logits labels seed()           -> dlogits
//
// The variance of batch_norm is biased (divided by the count). relu_gradient passes dy where y > 0,
// else 0. Padding is never the maximum of a pool; the first maximum wins, in pooling (row by row
// inside a window, where it takes the whole gradient) as in argmax. dropout is x keep / (1 - rate),
// its gradient uses the same mask. Labels are int32; dlogits = (softmax - onehot) seed. Biases,
// scales, statistics, logits and the loss are float32, and so are dw and db; a cast's type and a
// reshape's shape are those of its output.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace ringmaster::graph {

// What a node applies to its result before it writes it (set by the fusion pass).
enum class Activation : uint8_t { kNone, kRelu };

struct Conv2dAttributes {
  int64_t stride_height = 1, stride_width = 1;
  int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  Activation activation = Activation::kNone;  // conv2d only
};

struct DenseAttributes {
  Activation activation = Activation::kNone;  // dense only
};

struct PoolAttributes {
  int64_t window_height = 2, window_width = 2;
  int64_t stride_height = 2, stride_width = 2;
  int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
};

struct BatchNormAttributes {
  double epsilon = 1e-3;
  // kRelu: y = relu(normalized); the gradient op then has y as its last input and masks dy by it.
  Activation activation = Activation::kNone;
};

// Element e (logical order inside a sample) of sample s is kept when
// PhiloxStream(seed, kDropout, step, s, layer).Uniform(e) >= rate.
struct DropoutAttributes {
  double rate = 0;
  std::string layer;  // the layer's name before any pass
};

using Attributes = std::variant<std::monostate, Conv2dAttributes, DenseAttributes, PoolAttributes,
                                BatchNormAttributes, DropoutAttributes>;

}  // namespace ringmaster::graph
