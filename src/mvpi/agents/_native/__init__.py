"""TD3's update in compiled loops."""
