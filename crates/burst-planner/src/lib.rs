//! Optimal burst-parallel plans: how many GPUs each layer of a training job runs on, under a budget of GPU time.
