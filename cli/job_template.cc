#include "cli/job_template.h"

namespace ringmaster::cli {

const char kJobTemplate[] = R"(# A training job: ringctl submit THIS-FILE --watch
#
# What stands in a comment is a default, or another choice. Any value can be replaced when the job is
# submitted: --set batch=64 --set optimizer.adam.learning_rate=0.01

name: alexnet-cifar10      # a to z and 0 to 9 first, then also . _ and -; at most 100 characters

model:
  name: alexnet            # alexnet, mlp, vgg
  # batch_norm: false      # alexnet: default false; vgg: default true
  # dropout: 0             # 0 to below 1; alexnet, mlp: default 0; vgg: default 0.5
  # hidden: [2048, 2048]   # mlp: units of each hidden layer
  # depth: 16              # vgg: weight layers, 11, 13, 16 or 19

data:
  format: cifar10          # cifar10, cifar100, mnist; default: the one whose files are there
  path: cifar10            # folder, relative to the worker's --data-root
  # take: 5000             # only the first N training samples; default: all
  # take_test: 1000        # only the first N test samples; default: all
  # resize: [32, 32]       # [height, width] or one number, 1 to 1024; default: as they are
  # repeat_channels: 3     # grey images as images of 3 channels; default: as they are

batch: 256                 # samples of one step, at least 1
# shards: 8                # 1 to 4096, at most batch; default min(8, batch). Part of the result
epochs: 3                  # at least 1; or, instead of it:
#   steps: 1000            # at least 1
# seed: 0                  # another seed, another result

precision:
  policy: float32          # float32, mixed_bfloat16, mixed_float16. With mixed_float16 also:
  #   initial_loss_scale: 32768  # power of two, 1 to 2^24; halved when a gradient overflows
  #   growth_steps: 2000         # at least 1; doubled after so many good steps in a row

optimizer:
  adam:
    learning_rate: 0.001   # above 0
    # beta_1: 0.9          # 0 to below 1
    # beta_2: 0.999        # 0 to below 1
    # epsilon: 1.0e-7      # above 0
  #   sgd: {learning_rate: 0.01, momentum: 0, nesterov: false}  # instead of adam

augment:                   # training images, in this order; default: nothing
  - random_crop: {padding: 4}              # pixels of zeros on each side, 1 to 64
  - random_flip: {}                        # left and right, every second image
  #   - random_brightness: {max_delta: 63}           # above 0 to 255; pixels are 0 to 255
  #   - random_contrast: {lower: 0.2, upper: 1.8}    # 0 <= lower < upper <= 10
  - per_image_standardization: {}          # also at evaluation

# validation: {split: 0.1} # training samples set aside, above 0 to below 1; default: none
#   validation: {fold: 1/5}  # or the i-th of n equal parts

# workers: {min: 1, max: 8}  # waits for min; default 1 and the number of shards

checkpoint:
  every_steps: 100         # 0: only after the last step, the default
  # every_seconds: 0       # also so long after the newest one began, up to 86400; 0: never
  # keep: 3                # newest checkpoints kept; less than 2 counts as 2
  # best: test_accuracy    # also keep the best by test_accuracy, test_loss, validation_accuracy or
                           # validation_loss (these two need a validation set); default: none

# reduction: exact         # float32 for comparison: then the result depends on the cluster
# precision_bits: 21       # of the exact reduction, 8 to 24
)";

}  // namespace ringmaster::cli
