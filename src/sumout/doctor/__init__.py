"""The model doctor: looks at a program before it is sampled, and says what is wrong with it."""
